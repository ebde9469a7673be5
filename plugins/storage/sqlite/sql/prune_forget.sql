DELETE FROM fencepost_tombstones WHERE tenant_key = ?1 AND event_id = ?2
