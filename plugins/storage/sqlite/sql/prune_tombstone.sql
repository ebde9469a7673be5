INSERT INTO fencepost_tombstones (tenant_key, event_id, seq, feature, dedupe_hash, receipt_id, pruned_at)
SELECT tenant_key, event_id, seq, feature, dedupe_hash, receipt_id, ?2 FROM fencepost_events WHERE seq = ?1
