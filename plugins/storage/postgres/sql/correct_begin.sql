SELECT (SELECT value FROM {schema}.fencepost_meta WHERE key = 'routes_revision') <> $1::bigint
