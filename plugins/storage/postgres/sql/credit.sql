SELECT seq, meter, id, kind, amount::text, reason, created_at
FROM {schema}.fencepost_credits
WHERE tenant_key = $1 AND meter = $2 AND id = $3
