DELETE FROM fencepost_cloudevents WHERE tenant_key = ?1 AND receipt_id = ?2
