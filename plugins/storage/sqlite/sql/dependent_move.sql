UPDATE fencepost_outbox_state SET
  state = ?2,
  next_attempt_at = coalesce(?3, next_attempt_at),
  quarantine_reason = coalesce(?4, quarantine_reason),
  settled_at = CASE ?5 WHEN 1 THEN ?6 WHEN 0 THEN NULL ELSE settled_at END,
  disputed = nullif(coalesce(?7, disputed), ''),
  waits_for = CASE WHEN NOT ?8 THEN waits_for END
WHERE item = ?1
