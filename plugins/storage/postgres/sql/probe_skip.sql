SELECT value FROM {schema}.fencepost_meta WHERE key = 'probe' FOR UPDATE SKIP LOCKED
