INSERT INTO {schema}.fencepost_counters AS c
  (tenant_key, feature, period_start, period_end, value, updated_at)
SELECT d.tenant_key, d.feature, d.period_start, d.period_end, d.value::numeric, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[])
  WITH ORDINALITY AS d (tenant_key, feature, period_start, period_end, value, n)
ORDER BY d.n
ON CONFLICT (tenant_key, feature, period_start) DO UPDATE
SET value = c.value + excluded.value, updated_at = excluded.updated_at
