SELECT seq FROM {schema}.fencepost_events WHERE seq > $1::bigint ORDER BY seq LIMIT $2::integer
