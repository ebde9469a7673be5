UPDATE {schema}.fencepost_report_bounds SET exporter = $2::text WHERE exporter = $1::text
