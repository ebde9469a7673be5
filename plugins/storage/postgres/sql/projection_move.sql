WITH held AS MATERIALIZED (
  SELECT d.tenant_key, d.feature, d.period_start, d.quantity::numeric AS quantity, d.events, d.count, d.signed
  FROM unnest($2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::bigint[], $7::bigint[], $8::boolean[])
    WITH ORDINALITY AS d (tenant_key, feature, period_start, quantity, events, count, signed, n)
  JOIN {schema}.fencepost_totals AS t
    ON (t.tenant_key, t.feature, t.period_start, t.generation)
     = (d.tenant_key, d.feature, d.period_start, $1::bigint)
  ORDER BY d.n
  FOR UPDATE OF t
)
UPDATE {schema}.fencepost_totals AS t
SET quantity = t.quantity + d.quantity, events = t.events + d.events, count = t.count + d.count,
  signed = t.signed OR d.signed
FROM held AS d
WHERE (t.tenant_key, t.feature, t.period_start, t.generation)
    = (d.tenant_key, d.feature, d.period_start, $1::bigint)
