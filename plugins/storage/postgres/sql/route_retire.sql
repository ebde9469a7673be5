UPDATE {schema}.fencepost_routes SET retired_at = clock_timestamp() WHERE route = $1 AND retired_at IS NULL
