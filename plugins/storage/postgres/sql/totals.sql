SELECT t.tenant_key, t.feature, t.period_start, t.period_end, t.quantity::text, t.events, t.count
FROM {schema}.fencepost_generations AS g
JOIN {schema}.fencepost_totals AS t ON t.generation = g.active
WHERE t.tenant_key = $1
  AND ($2::text = '' OR t.feature = $2::text)
  AND ($3::timestamptz IS NULL OR t.period_start >= $3)
  AND ($4::timestamptz IS NULL OR t.period_start < $4)
ORDER BY t.tenant_key, t.feature, t.period_start
