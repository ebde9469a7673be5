UPDATE fencepost_outbox_state SET
  state = 'confirmed', confirmed_at = ?2, confirmed_by = ?3, settled_at = coalesce(settled_at, ?2)
WHERE item = ?1 AND state = 'accepted' AND superseded_by IS NULL
