SELECT tenant_key, feature, period_start, period_end, value FROM fencepost_counters
WHERE tenant_key = ?1 AND (feature, period_start) > (?2, ?3) AND (?5 IS NULL OR feature = ?5)
ORDER BY feature, period_start LIMIT ?4
