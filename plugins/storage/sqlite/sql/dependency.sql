SELECT state, settled_at IS NOT NULL, superseded_by IS NOT NULL FROM fencepost_outbox_state WHERE item = ?1
