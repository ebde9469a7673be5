SELECT 1 FROM fencepost_events WHERE tenant_key = ?1 AND event_id = ?2 AND occurred_at < ?3
