SELECT i.digest
FROM fencepost_outbox_state AS s JOIN fencepost_outbox_items AS i ON i.item = s.item
WHERE s.subject_key = ?1 AND s.superseded_by IS NULL
