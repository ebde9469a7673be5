UPDATE {schema}.fencepost_meta SET value = value + 1 WHERE key = 'routes_revision'
