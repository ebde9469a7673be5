-- In the order of the key, as the seed.
INSERT INTO {schema}.fencepost_totals
  (tenant_key, feature, period_start, generation, period_end, quantity, events, count, signed)
SELECT tenant_key, feature, period_start, $2::bigint, max(period_end), sum(quantity),
  sum(events), sum(count), bool_or(signed)
FROM {schema}.fencepost_totals
WHERE generation = $1 OR generation = 0
GROUP BY tenant_key, feature, period_start
ORDER BY tenant_key, feature, period_start
