UPDATE {schema}.fencepost_routes SET exporter = $2::text WHERE exporter = $1::text
