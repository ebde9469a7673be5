SELECT accepted_at FROM fencepost_outbox_state
WHERE state = 'accepted' AND superseded_by IS NULL AND accepted_at > -9223372036854775808
ORDER BY accepted_at LIMIT 1
