SELECT event_id, feature FROM fencepost_events WHERE seq = ?1
UNION ALL
SELECT event_id, feature FROM fencepost_tombstones WHERE seq = ?1
