SELECT coalesce(sum(quantity), 0)::text FROM {schema}.fencepost_events
WHERE tenant_key = $1::text AND original_event_id = $2::text
