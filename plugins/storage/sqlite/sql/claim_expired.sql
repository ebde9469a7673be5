SELECT item FROM fencepost_outbox_state
WHERE state = 'leased' AND route = ?1 AND lease_expires_at < ?2 AND superseded_by IS NULL
ORDER BY lease_expires_at LIMIT ?3
