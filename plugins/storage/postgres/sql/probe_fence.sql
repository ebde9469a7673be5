UPDATE {schema}.fencepost_meta SET value = value + 1 WHERE key = 'probe' AND value = $1
