SELECT i.item, i.created_at
FROM fencepost_outbox_state AS s NOT INDEXED CROSS JOIN fencepost_outbox_items AS i ON i.item = s.item
WHERE s.item >= ?1 AND s.state = 'pending' AND s.superseded_by IS NULL
ORDER BY s.item LIMIT 1
