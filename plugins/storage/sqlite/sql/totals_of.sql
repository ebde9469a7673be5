SELECT tenant_key, feature, period_start, period_end, quantity, events, count, signed
FROM fencepost_totals WHERE generation = ?1
ORDER BY tenant_key, feature, period_start LIMIT ?2
