SELECT i.item, i.tenant_key, i.subject_kind, i.subject_ref, i.exporter, i.destination_account,
       i.mode, i.mapping_version, i.digest, i.route, i.feature, i.customer, s.serial_key,
       s.state, s.attempts, s.attempt_budget, s.unresolved, s.first_attempt_at,
       s.first_unresolved_at, s.next_attempt_at, s.claimed_at, s.lease_owner,
       s.lease_expires_at, s.lease_token, s.provider_ref, s.accepted_at, s.confirmed_at,
       s.confirmed_by, s.disputed, s.last_error, s.quarantine_reason, s.settled_at,
       s.superseded_by, i.created_at, s.method, i.depends_on, s.waits_for IS NOT NULL
FROM fencepost_outbox_items AS i JOIN fencepost_outbox_state AS s ON s.item = i.item
WHERE i.item > ?1
  AND i.event_seq = (SELECT e.seq FROM fencepost_events AS e WHERE e.tenant_key = ?4 AND e.event_id = ?8)
  AND (?3 IS NULL OR s.state = ?3)
  AND (?4 IS NULL OR i.tenant_key = ?4)
  AND (?5 IS NULL
    OR i.route IN (SELECT r.route FROM fencepost_routes AS r WHERE r.exporter = ?5)
    OR i.exporter = ?5 AND NOT EXISTS (SELECT 1 FROM fencepost_routes AS r WHERE r.exporter = ?5))
  AND (?6 IS NULL OR i.feature = ?6)
  AND (?7 IS NULL OR s.quarantine_reason = ?7)
  AND (?8 IS NULL OR i.subject_ref = ?8)
  AND (?9 IS NULL OR i.destination_account = ?9)
  AND (?10 IS NULL OR i.mode = ?10)
  AND (NOT ?11 OR s.settled_at IS NULL)
  AND (NOT ?12 OR s.disputed IS NOT NULL)
  AND (?13 IS NULL OR (s.state = 'accepted' AND s.accepted_at <= ?13 AND s.superseded_by IS NULL))
  AND (?15 IS NULL OR i.depends_on = ?15)
ORDER BY i.item LIMIT ?2
