SELECT count(*) FROM {schema}.fencepost_outbox_state AS s
WHERE s.disputed IS NOT NULL AND s.settled_at IS NULL
