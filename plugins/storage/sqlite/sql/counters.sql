SELECT tenant_key, feature, period_start, period_end, value FROM fencepost_counters
WHERE (tenant_key, feature, period_start) > (?1, ?2, ?3)
  AND (?5 IS NULL OR feature = ?5)
ORDER BY tenant_key, feature, period_start LIMIT ?4
