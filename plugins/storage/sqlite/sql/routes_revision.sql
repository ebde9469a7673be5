SELECT value FROM fencepost_meta WHERE key = 'routes_revision'
