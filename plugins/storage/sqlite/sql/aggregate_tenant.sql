SELECT e.seq, e.occurred_at, e.kind, e.quantity, e.effect, e.reverses, e.dimensions, e.event_id,
       CASE WHEN ?5 THEN EXISTS (
         SELECT 1 FROM fencepost_events AS c
         WHERE c.tenant_key = e.tenant_key AND c.original_event_id = e.event_id) ELSE 0 END
FROM fencepost_events AS e INDEXED BY sqlite_autoindex_fencepost_events_1
WHERE e.tenant_key = ?1 AND e.feature = ?2 AND e.occurred_at >= ?3 AND e.occurred_at < ?4
