SELECT tenant_key, event_id FROM {schema}.fencepost_tombstones
WHERE pruned_at < (SELECT clock_timestamp() - $1::interval)
ORDER BY pruned_at LIMIT $2::integer
