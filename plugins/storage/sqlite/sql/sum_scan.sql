SELECT i.item, i.mapping_version, i.payload, s.route, s.state, s.disputed IS NOT NULL,
       s.accepted_at IS NULL, s.settled_at IS NULL, s.accepted_at, e.seq IS NOT NULL, coalesce(e.effect, e.quantity)
FROM fencepost_outbox_items AS i
CROSS JOIN fencepost_outbox_state AS s ON s.item = i.item
LEFT JOIN fencepost_events AS e ON e.seq = i.event_seq
WHERE i.customer = ?1 AND i.feature = ?2 AND i.usage_at >= ?3 AND i.usage_at < ?4
  AND +s.superseded_by IS NULL
  -- What a counter reports is in its windows.
  AND NOT (+s.state = 'quarantined' AND (
    s.quarantine_reason IN ('period_buffered', 'feature_buffered')
    OR s.quarantine_reason = 'original_ineligible' AND EXISTS (
      SELECT 1 FROM fencepost_outbox_state AS o
      WHERE o.item = i.depends_on AND o.state = 'quarantined' AND o.quarantine_reason IN ('period_buffered', 'feature_buffered'))))
