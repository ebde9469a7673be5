DELETE FROM fencepost_outbox_items WHERE item = ?1
