SELECT tenant_key, receipt_id, source, id, type, occurred_at, dedupe_hash, features, body, recorded_at
FROM {schema}.fencepost_cloudevents
WHERE tenant_key = $1 AND receipt_id = $2
