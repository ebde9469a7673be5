DELETE FROM fencepost_events WHERE seq = ?1
