INSERT INTO fencepost_receipts (batch_id, owner, applied_at) VALUES (?1, ?2, ?3)
ON CONFLICT (batch_id) DO NOTHING
