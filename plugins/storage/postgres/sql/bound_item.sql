-- The item stays as it is until the bound has moved: one that is sent again
-- meanwhile must not be written off.
SELECT state, settled_at IS NOT NULL FROM {schema}.fencepost_outbox_state WHERE item = $1::bigint FOR NO KEY UPDATE
