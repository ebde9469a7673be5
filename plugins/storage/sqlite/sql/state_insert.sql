INSERT INTO fencepost_outbox_state (
  item, route, subject_key, serial_key, state, attempt_budget, next_attempt_at, quarantine_reason, settled_at, waits_for)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (subject_key) WHERE superseded_by IS NULL DO NOTHING
