UPDATE fencepost_outbox_state SET
  state = 'leased', attempts = attempts + 1, lease_token = lease_token + 1,
  lease_owner = ?2, claimed_at = ?3, lease_expires_at = ?4,
  first_attempt_at = coalesce(first_attempt_at, ?3),
  unresolved = ?5, first_unresolved_at = ?6
WHERE item = ?1 AND lease_token = ?7
