SELECT coalesce(max(seq), 0) FROM fencepost_events
