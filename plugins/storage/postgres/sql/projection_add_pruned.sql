INSERT INTO {schema}.fencepost_totals AS t
  (tenant_key, feature, period_start, generation, period_end, quantity, events, count, signed)
SELECT tenant_key, feature, period_start, $1::bigint, period_end, quantity, events, count, signed
FROM {schema}.fencepost_totals
WHERE generation = 0
ORDER BY tenant_key, feature, period_start
ON CONFLICT (tenant_key, feature, period_start, generation) DO UPDATE
SET quantity = t.quantity + excluded.quantity, events = t.events + excluded.events,
  count = t.count + excluded.count, signed = t.signed OR excluded.signed
