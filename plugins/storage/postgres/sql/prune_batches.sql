SELECT batch_id FROM {schema}.fencepost_receipts
WHERE applied_at < (SELECT clock_timestamp() - $1::interval)
ORDER BY applied_at LIMIT $2::integer
