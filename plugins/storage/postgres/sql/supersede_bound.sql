UPDATE {schema}.fencepost_report_bounds SET item = $2::bigint, updated_at = clock_timestamp()
WHERE staged_to IS NOT NULL AND item = $1::bigint
