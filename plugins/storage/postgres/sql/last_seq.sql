SELECT coalesce(max(seq), 0) FROM {schema}.fencepost_events
