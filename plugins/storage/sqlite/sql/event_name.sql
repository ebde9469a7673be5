SELECT event_id, feature FROM fencepost_events WHERE seq = ?1
