INSERT INTO {schema}.fencepost_history AS h (tenant_key, feature, step_start, value)
SELECT d.tenant_key, d.feature, d.step_start, d.value::numeric
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[])
  WITH ORDINALITY AS d (tenant_key, feature, step_start, value, n)
ORDER BY d.n
ON CONFLICT (tenant_key, feature, step_start) DO UPDATE SET value = h.value + excluded.value
