UPDATE fencepost_cloudevents SET body = NULL
WHERE tenant_key = ?1 AND receipt_id = ?2 AND body IS NOT NULL
