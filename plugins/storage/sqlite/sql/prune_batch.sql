DELETE FROM fencepost_receipts WHERE batch_id = ?1
