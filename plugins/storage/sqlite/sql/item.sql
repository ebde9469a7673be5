SELECT i.item, i.tenant_key, i.subject_kind, i.subject_ref, i.exporter, i.destination_account,
       i.mode, i.mapping_version, i.digest, i.route, i.feature, i.customer, s.serial_key,
       s.state, s.attempts, s.attempt_budget, s.unresolved, s.first_attempt_at,
       s.first_unresolved_at, s.next_attempt_at, s.claimed_at, s.lease_owner,
       s.lease_expires_at, s.lease_token, s.provider_ref, s.accepted_at, s.confirmed_at,
       s.confirmed_by, s.disputed, s.last_error, s.quarantine_reason, s.settled_at,
       s.superseded_by, i.created_at, s.method, i.depends_on, s.waits_for IS NOT NULL,
       i.event_seq, i.payload
FROM fencepost_outbox_items AS i JOIN fencepost_outbox_state AS s ON s.item = i.item
WHERE i.item = ?1
