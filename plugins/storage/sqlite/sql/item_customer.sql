UPDATE fencepost_outbox_items SET customer = ?2 WHERE item = ?1 AND customer = ''
