SELECT route, settled_at IS NULL FROM fencepost_outbox_state WHERE item = ?1
