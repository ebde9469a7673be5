SELECT 1 FROM fencepost_events WHERE seq = ?1
