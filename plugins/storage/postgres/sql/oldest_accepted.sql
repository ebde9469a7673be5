SELECT greatest(clock_timestamp() - s.accepted_at, interval '0')
FROM {schema}.fencepost_outbox_state AS s
WHERE s.state = 'accepted' AND s.superseded_by IS NULL AND s.accepted_at IS NOT NULL
ORDER BY s.accepted_at LIMIT 1
