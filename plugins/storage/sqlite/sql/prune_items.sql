SELECT i.item, s.route, s.state, s.settled_at IS NULL
FROM fencepost_outbox_items AS i CROSS JOIN fencepost_outbox_state AS s ON s.item = i.item
WHERE i.event_seq = ?1
