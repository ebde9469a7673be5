SELECT count(*) FROM {schema}.fencepost_attempts WHERE fenced
