SELECT receipt_id FROM fencepost_events WHERE seq = ?1 AND receipt_id IS NOT NULL
