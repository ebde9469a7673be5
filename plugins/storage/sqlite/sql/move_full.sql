UPDATE fencepost_outbox_state SET
  state = ?2,
  lease_owner = CASE WHEN ?2 = 'leased' THEN lease_owner END,
  lease_expires_at = CASE WHEN ?2 = 'leased' THEN lease_expires_at END,
  next_attempt_at = coalesce(?3, next_attempt_at),
  attempts = max(attempts - ?4, 0),
  unresolved = max(unresolved, ?5),
  first_unresolved_at = CASE WHEN ?5 THEN coalesce(first_unresolved_at, claimed_at) ELSE first_unresolved_at END,
  provider_ref = coalesce(?6, provider_ref),
  accepted_at = coalesce(?7, accepted_at),
  confirmed_at = coalesce(?8, confirmed_at),
  confirmed_by = coalesce(?9, confirmed_by),
  last_error = coalesce(?10, last_error),
  quarantine_reason = CASE WHEN ?23 THEN NULL ELSE coalesce(?11, quarantine_reason) END,
  settled_at = CASE ?12 WHEN 1 THEN ?13 WHEN 0 THEN NULL ELSE settled_at END,
  attempt_budget = attempt_budget + ?17,
  disputed = nullif(coalesce(?18, disputed), ''),
  method = coalesce(?19, method),
  serial_key = CASE WHEN ?20 IS NOT NULL THEN coalesce(?21, serial_key) ELSE serial_key END,
  waits_for = CASE WHEN NOT ?22 THEN waits_for END
WHERE item = ?1 AND superseded_by IS NULL AND state = ?14
  AND (?15 IS NULL OR lease_token = ?15)
  AND (?16 IS NULL OR unresolved = ?16)
  AND (?24 IS NULL OR (settled_at IS NOT NULL) = ?24)
  AND (?25 IS NULL OR attempts = ?25)
  AND (?26 IS NULL OR claimed_at IS NULL OR claimed_at <= ?26)
  AND (?27 IS NULL OR first_unresolved_at IS NULL OR first_unresolved_at > ?27)
  AND (?28 IS NULL OR first_unresolved_at IS NULL OR first_unresolved_at >= ?28)
  AND (?19 IS NULL OR method IS NULL OR method = ?19)
  AND (?20 IS NULL OR ?20 = (SELECT iif(i.customer = '', ?20, i.customer) FROM fencepost_outbox_items AS i WHERE i.item = ?1))
  AND (?29 IS NULL OR ?29 = (SELECT i.mapping_version FROM fencepost_outbox_items AS i WHERE i.item = ?1))
