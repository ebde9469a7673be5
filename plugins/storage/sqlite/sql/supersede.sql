UPDATE fencepost_outbox_state SET superseded_by = ?2, settled_at = coalesce(settled_at, ?3) WHERE item = ?1 AND superseded_by IS NULL
