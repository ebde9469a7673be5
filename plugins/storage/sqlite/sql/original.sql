SELECT s.state, s.unresolved, s.disputed, s.first_attempt_at, i.digest,
       (SELECT count(*) FROM fencepost_outbox_items AS d CROSS JOIN fencepost_outbox_state AS t ON t.item = d.item
        WHERE d.depends_on = ?1 AND +t.superseded_by IS NULL)
FROM fencepost_outbox_state AS s JOIN fencepost_outbox_items AS i ON i.item = s.item
WHERE s.item = ?1
