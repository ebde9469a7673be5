SELECT seq, meter, id, kind, amount, reason, created_at FROM fencepost_credits
WHERE tenant_key = ?1 AND meter = ?2 AND id = ?3
