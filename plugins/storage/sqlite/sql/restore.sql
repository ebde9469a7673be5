UPDATE fencepost_outbox_state SET
  state = 'uncertain', unresolved = 1, first_unresolved_at = coalesce(first_unresolved_at, ?2),
  lease_owner = NULL, lease_expires_at = NULL, lease_token = lease_token + 1, claimed_at = ?4,
  last_error = CASE WHEN state = 'uncertain' THEN last_error ELSE ?3 END
WHERE item = ?1
