SELECT tenant_key, feature, period_start, period_end, value FROM fencepost_counters
WHERE tenant_key = ?1 AND feature = ?2 AND period_start = ?3
