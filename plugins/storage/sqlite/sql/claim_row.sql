SELECT s.route, s.serial_key, s.attempts, s.attempt_budget, s.unresolved,
       s.first_unresolved_at, s.first_attempt_at, s.claimed_at, s.lease_token,
       i.tenant_key, i.subject_kind, i.subject_ref, i.exporter, i.destination_account,
       i.mode, i.mapping_version, i.digest, i.customer, i.payload, i.depends_on, s.method,
       e.seq IS NOT NULL,
       e.seq, e.tenant_key, e.event_id, e.feature, e.quantity, e.kind, e.effect,
       e.reverses, e.original_event_id,
       e.occurred_at, e.period_start, e.period_end, e.period_source, e.plan,
       e.plan_version, e.dimensions, e.metadata, e.payload_hash, e.dedupe_hash,
       e.recorded_at
FROM fencepost_outbox_state AS s
JOIN fencepost_outbox_items AS i ON i.item = s.item
LEFT JOIN fencepost_events AS e ON e.seq = i.event_seq
WHERE s.item = ?1
