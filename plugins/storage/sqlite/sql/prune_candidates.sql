SELECT e.seq, e.tenant_key, e.event_id, e.feature, e.original_event_id, e.recorded_at,
       EXISTS (
         SELECT 1 FROM fencepost_outbox_items AS i CROSS JOIN fencepost_outbox_state AS s ON s.item = i.item
         WHERE i.event_seq = e.seq AND s.settled_at IS NULL AND +s.superseded_by IS NULL),
       EXISTS (
         SELECT 1 FROM fencepost_events AS c
         WHERE c.tenant_key = e.tenant_key AND c.original_event_id = e.event_id)
FROM fencepost_events AS e
WHERE e.seq > ?1
ORDER BY e.seq
