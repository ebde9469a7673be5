UPDATE fencepost_outbox_state SET
  state = 'uncertain', lease_token = lease_token + 1, lease_owner = NULL, lease_expires_at = NULL,
  last_error = ?2, unresolved = ?3, first_unresolved_at = ?4
WHERE item = ?1 AND lease_token = ?5
