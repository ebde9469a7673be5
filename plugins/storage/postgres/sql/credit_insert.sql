INSERT INTO {schema}.fencepost_credits (tenant_key, meter, id, kind, amount, reason, created_at)
VALUES ($1, $2, $3, $4, $5::text::numeric, $6, clock_timestamp())
ON CONFLICT (tenant_key, meter, id) DO NOTHING
