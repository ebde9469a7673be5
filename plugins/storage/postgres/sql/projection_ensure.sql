-- Rows that exist are updated without a change, so that this statement locks
-- all of them in the order of their keys: a batch that recorded some of them
-- before others waits for it, or it for that batch, never both. Where none is
-- missing there is nothing to insert and the move locks in the same order.
INSERT INTO {schema}.fencepost_totals AS t
  (tenant_key, feature, period_start, generation, period_end, quantity, events, count, signed)
SELECT d.tenant_key, d.feature, d.period_start, $1::bigint, d.period_end, 0, 0, 0, d.signed
FROM unnest($2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::boolean[])
  WITH ORDINALITY AS d (tenant_key, feature, period_start, period_end, signed, n)
WHERE EXISTS (
  SELECT FROM unnest($2::text[], $3::text[], $4::timestamptz[]) AS k (tenant_key, feature, period_start)
  LEFT JOIN {schema}.fencepost_totals AS t
    ON (t.tenant_key, t.feature, t.period_start, t.generation)
     = (k.tenant_key, k.feature, k.period_start, $1::bigint)
  WHERE t.generation IS NULL)
ORDER BY d.n
ON CONFLICT (tenant_key, feature, period_start, generation) DO UPDATE SET signed = t.signed
