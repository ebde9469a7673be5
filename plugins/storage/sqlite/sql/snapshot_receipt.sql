SELECT 1 FROM fencepost_cloudevents WHERE tenant_key = ?1 AND receipt_id = ?2 AND occurred_at < ?3
