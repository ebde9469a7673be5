-- What may have been sent in a time that the store does not remember.
SELECT count(*) FROM {schema}.fencepost_outbox_state AS s
JOIN {schema}.fencepost_outbox_items AS i ON i.item = s.item
WHERE s.settled_at IS NULL AND s.superseded_by IS NULL AND i.created_at <= $1::timestamptz
  AND (s.state IN ('pending', 'leased', 'quarantined')
    OR s.state = 'uncertain' AND (NOT s.unresolved OR s.first_unresolved_at IS NULL))
