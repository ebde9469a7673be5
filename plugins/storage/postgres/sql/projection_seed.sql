-- In the order of the key: the index grows page by page.
INSERT INTO {schema}.fencepost_totals
  (tenant_key, feature, period_start, generation, period_end, quantity, events, count, signed)
SELECT tenant_key, feature, period_start, -$2::bigint, period_end, quantity, events, count, signed
FROM {schema}.fencepost_totals
WHERE generation = $1
ORDER BY tenant_key, feature, period_start
