SELECT next_attempt_at, item FROM fencepost_outbox_state
WHERE state = 'pending' AND superseded_by IS NULL AND waits_for IS NULL AND route = ?1
  AND next_attempt_at <= ?2 AND (next_attempt_at, item) > (?3, ?4)
ORDER BY next_attempt_at, item LIMIT ?5
