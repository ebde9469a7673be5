DELETE FROM fencepost_outbox_state WHERE item = ?1
