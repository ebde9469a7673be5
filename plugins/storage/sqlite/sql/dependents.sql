SELECT s.item, s.route, s.state, s.settled_at IS NULL, s.waits_for IS NOT NULL
FROM fencepost_outbox_items AS i CROSS JOIN fencepost_outbox_state AS s ON s.item = i.item
WHERE i.depends_on = ?1 AND +s.superseded_by IS NULL
ORDER BY i.item
