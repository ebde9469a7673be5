SELECT seq, meter, id, kind, amount::text, reason, created_at
FROM {schema}.fencepost_credits
WHERE tenant_key = $1 AND seq > $2 AND ($3::text IS NULL OR meter = $3)
ORDER BY seq
LIMIT $4
