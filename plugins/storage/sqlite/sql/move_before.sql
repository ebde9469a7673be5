SELECT route, settled_at IS NULL, disputed IS NOT NULL FROM fencepost_outbox_state WHERE item = ?1
