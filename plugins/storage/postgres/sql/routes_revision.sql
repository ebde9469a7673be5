SELECT value FROM {schema}.fencepost_meta WHERE key = 'routes_revision'
