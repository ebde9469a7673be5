SELECT quantity FROM fencepost_events
WHERE tenant_key = ?1 AND original_event_id = ?2
