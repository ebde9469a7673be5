SELECT seq, meter, id, kind, amount, reason, created_at FROM fencepost_credits
WHERE tenant_key = ?1 AND seq > ?2 AND (?3 IS NULL OR meter = ?3)
ORDER BY seq LIMIT ?4
