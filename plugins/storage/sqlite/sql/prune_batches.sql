SELECT batch_id FROM fencepost_receipts WHERE applied_at < ?1 ORDER BY applied_at LIMIT ?2
