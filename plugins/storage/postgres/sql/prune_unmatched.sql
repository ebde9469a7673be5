SELECT tenant_key, receipt_id FROM {schema}.fencepost_cloudevents
WHERE event_ids = '{}' AND recorded_at < (SELECT clock_timestamp() - $1::interval)
ORDER BY recorded_at LIMIT $2::integer
