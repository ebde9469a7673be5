SELECT i.item, i.tenant_key, i.subject_kind, i.subject_ref, i.exporter, i.destination_account,
       i.mode, i.mapping_version, i.digest, i.route, i.feature, i.customer, s.serial_key,
       s.state, s.attempts, s.attempt_budget, s.unresolved, s.first_attempt_at,
       s.first_unresolved_at, s.next_attempt_at, s.claimed_at, s.lease_owner,
       s.lease_expires_at, s.lease_token, s.provider_ref, s.accepted_at, s.confirmed_at,
       s.confirmed_by, s.disputed, s.last_error, s.quarantine_reason, s.settled_at,
       s.superseded_by, i.created_at, s.method, i.depends_on,
       s.waits_for IS NOT NULL
FROM {schema}.fencepost_outbox_items AS i JOIN {schema}.fencepost_outbox_state AS s ON s.item = i.item
WHERE i.item > $1::bigint
  AND ($3::text IS NULL OR s.state = $3)
  AND ($4::text IS NULL OR i.tenant_key = $4)
  AND ($5::text IS NULL
    OR i.route IN (SELECT r.route FROM {schema}.fencepost_routes AS r WHERE r.exporter = $5)
    OR i.exporter = $5 AND NOT EXISTS (SELECT FROM {schema}.fencepost_routes AS r WHERE r.exporter = $5))
  AND ($6::text IS NULL OR i.feature = $6)
  AND ($7::text IS NULL OR s.quarantine_reason = $7)
  AND ($8::text IS NULL OR i.subject_ref = $8)
  AND ($9::text IS NULL OR i.destination_account = $9)
  AND ($10::text IS NULL OR i.mode = $10)
  AND (NOT $11::boolean OR s.settled_at IS NULL)
  AND (NOT $12::boolean OR s.disputed IS NOT NULL)
  AND ($13::interval IS NULL OR s.state = 'accepted' AND s.superseded_by IS NULL
    AND s.accepted_at <= (SELECT clock_timestamp() - $13))
  AND ($14::bytea[] IS NULL OR i.digest = ANY ($14))
  AND ($15::bigint IS NULL OR i.depends_on = $15)
ORDER BY i.item LIMIT $2::integer
