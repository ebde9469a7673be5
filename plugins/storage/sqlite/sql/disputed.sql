SELECT count(*) FROM fencepost_outbox_state WHERE disputed IS NOT NULL AND settled_at IS NULL AND superseded_by IS NULL
