SELECT EXISTS (SELECT FROM {schema}.fencepost_routes WHERE exporter = $1::text)
    OR EXISTS (SELECT FROM {schema}.fencepost_report_bounds WHERE exporter = $1::text)
