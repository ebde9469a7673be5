SELECT s.item, s.route, s.state
FROM fencepost_outbox_state AS s CROSS JOIN fencepost_outbox_items AS i ON i.item = s.item
WHERE s.settled_at IS NULL AND s.superseded_by IS NULL AND i.created_at <= ?1
  AND (s.state = 'pending' OR s.state = 'leased' OR s.state = 'quarantined'
    OR s.state = 'uncertain' AND (s.unresolved = 0 OR s.first_unresolved_at IS NULL))
ORDER BY s.item LIMIT ?2
