INSERT INTO {schema}.fencepost_cutovers (tenant_key, feature, durable_from, decided_at)
SELECT c.tenant_key, c.feature, c.durable_from, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) WITH ORDINALITY AS c (tenant_key, feature, durable_from, n)
ORDER BY c.tenant_key COLLATE "C", c.feature COLLATE "C", c.n
ON CONFLICT (tenant_key, feature) DO NOTHING
