-- Makes the copy equal to the active generation again: few totals moved since
-- it was made, and totals of the active generation are never removed.
INSERT INTO {schema}.fencepost_totals AS t
  (tenant_key, feature, period_start, generation, period_end, quantity, events, count, signed)
SELECT a.tenant_key, a.feature, a.period_start, $2::bigint, a.period_end, a.quantity, a.events, a.count, a.signed
FROM (SELECT * FROM {schema}.fencepost_totals WHERE generation = $1) AS a
LEFT JOIN (SELECT * FROM {schema}.fencepost_totals WHERE generation = $2) AS c
  ON c.tenant_key = a.tenant_key AND c.feature = a.feature AND c.period_start = a.period_start
WHERE c.generation IS NULL
  OR (c.period_end, c.quantity, c.events, c.count, c.signed) <> (a.period_end, a.quantity, a.events, a.count, a.signed)
ORDER BY a.tenant_key, a.feature, a.period_start
ON CONFLICT (tenant_key, feature, period_start, generation) DO UPDATE
SET period_end = excluded.period_end, quantity = excluded.quantity, events = excluded.events,
  count = excluded.count, signed = excluded.signed
