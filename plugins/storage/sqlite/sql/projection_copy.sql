INSERT INTO fencepost_totals (
  generation, tenant_key, feature, period_start, period_end, quantity, events, count, signed)
SELECT ?2, tenant_key, feature, period_start, period_end, quantity, events, count, signed
FROM fencepost_totals WHERE generation = ?1
