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
  quarantine_reason = coalesce(?11, quarantine_reason),
  settled_at = CASE ?12 WHEN 1 THEN ?13 WHEN 0 THEN NULL ELSE settled_at END
WHERE item = ?1 AND superseded_by IS NULL AND state = ?14
  AND (?15 IS NULL OR lease_token = ?15)
  AND (?16 IS NULL OR unresolved = ?16)
