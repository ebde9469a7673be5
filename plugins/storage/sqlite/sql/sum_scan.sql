SELECT i.item, i.customer, i.feature, i.mapping_version, i.payload, s.route, s.state, s.disputed IS NOT NULL,
       s.accepted_at IS NULL, s.settled_at IS NULL, s.accepted_at, e.seq IS NOT NULL, coalesce(e.effect, e.quantity)
FROM fencepost_outbox_items AS i
CROSS JOIN fencepost_outbox_state AS s ON s.item = i.item
CROSS JOIN fencepost_routes AS r ON r.route = i.route
LEFT JOIN fencepost_events AS e ON e.seq = i.event_seq
WHERE r.exporter = ?1 AND r.destination_account = ?2 AND r.mode = ?3 AND s.superseded_by IS NULL
  AND (e.seq IS NULL OR e.occurred_at >= ?4 AND e.occurred_at < ?5)
  AND (?6 IS NULL OR i.customer = ?6)
  AND (?7 IS NULL OR i.feature = ?7)
  AND (i.customer, i.feature, i.mapping_version) > (?8, ?9, ?10)
ORDER BY i.item
