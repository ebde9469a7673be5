SELECT lease_expires_at, item FROM fencepost_outbox_state
WHERE state = 'leased' AND route = ?1 AND superseded_by IS NULL
  AND lease_expires_at < ?2 AND (lease_expires_at, item) > (?3, ?4)
ORDER BY lease_expires_at, item LIMIT ?5
