UPDATE fencepost_outbox_state SET lease_expires_at = ?1
WHERE state = 'leased' AND lease_expires_at > ?1
