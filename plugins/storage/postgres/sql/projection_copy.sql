-- In the order of the key: the indexes grow page by page.
INSERT INTO {schema}.fencepost_totals
  (tenant_key, feature, period_start, generation, period_end, quantity, events, count, signed)
SELECT t.tenant_key, t.feature, t.period_start, g.generation, t.period_end, t.quantity, t.events, t.count, t.signed
FROM {schema}.fencepost_totals AS t, (VALUES (-$2::bigint), ($2::bigint)) AS g (generation)
WHERE t.generation = $1
ORDER BY t.tenant_key, t.feature, t.period_start, g.generation
