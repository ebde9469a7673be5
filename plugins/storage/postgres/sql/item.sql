SELECT i.item, i.tenant_key, i.subject_kind, i.subject_ref, i.exporter, i.destination_account,
       i.mode, i.mapping_version, i.digest, i.route, i.feature, i.customer, s.serial_key,
       s.state, s.attempts, s.attempt_budget, s.unresolved, s.first_attempt_at,
       s.first_unresolved_at, s.next_attempt_at, s.claimed_at, s.lease_owner,
       s.lease_expires_at, s.lease_token, s.provider_ref, s.accepted_at, s.confirmed_at,
       s.confirmed_by, s.disputed, s.last_error, s.quarantine_reason, s.settled_at,
       s.superseded_by, i.created_at, s.method, i.depends_on,
       s.waits_for IS NOT NULL,
       i.payload, m.label, m.content,
       e.seq, e.tenant_key, e.event_id, e.feature, e.quantity::text, e.effect::text, e.kind, e.reverses,
       e.original_event_id, e.occurred_at, e.period_start, e.period_end, e.period_source, e.plan,
       e.plan_version, e.dimensions, e.metadata, e.payload_hash, e.dedupe_hash, e.recorded_at
FROM {schema}.fencepost_outbox_items AS i JOIN {schema}.fencepost_outbox_state AS s ON s.item = i.item
LEFT JOIN {schema}.fencepost_mappings AS m ON m.version = i.mapping_version
LEFT JOIN {schema}.fencepost_events AS e ON e.seq = i.event_seq
WHERE i.item = $1::bigint
