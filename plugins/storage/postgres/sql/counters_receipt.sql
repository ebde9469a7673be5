INSERT INTO {schema}.fencepost_receipts (batch_id, owner, applied_at)
VALUES ($1, $2, clock_timestamp())
ON CONFLICT (batch_id) DO NOTHING
