SELECT 1 FROM fencepost_events AS c
WHERE c.tenant_key = ?1 AND c.original_event_id = ?2
  AND (c.recorded_at >= ?3 OR (c.seq > ?4 AND c.seq <= ?5) OR EXISTS (
    SELECT 1 FROM fencepost_outbox_items AS i CROSS JOIN fencepost_outbox_state AS s ON s.item = i.item
    WHERE i.event_seq = c.seq AND s.settled_at IS NULL AND +s.superseded_by IS NULL))
LIMIT 1
