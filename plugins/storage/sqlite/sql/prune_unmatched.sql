SELECT tenant_key, receipt_id FROM fencepost_cloudevents
WHERE seqs = '[]' AND recorded_at < ?1 ORDER BY recorded_at LIMIT ?2
