SELECT tenant_key, event_id, receipt_id FROM fencepost_tombstones
WHERE pruned_at < ?1 ORDER BY pruned_at LIMIT ?2
