SELECT 1 FROM fencepost_outbox_state
WHERE state = 'leased' AND serial_key <> '' AND serial_key = ?1 AND lease_expires_at >= ?2
LIMIT 1
