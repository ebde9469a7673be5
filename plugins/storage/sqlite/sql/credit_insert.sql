INSERT INTO fencepost_credits (tenant_key, meter, id, kind, amount, reason, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
RETURNING seq
