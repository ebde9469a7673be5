UPDATE {schema}.fencepost_report_bounds SET
  acked = CASE WHEN $8::boolean THEN staged_to ELSE acked END, staged_to = NULL, item = NULL, updated_at = clock_timestamp()
WHERE tenant_key = $4::text AND feature = $5::text AND period_start = $6::timestamptz
  AND exporter = $1::text AND destination_account = $2::text AND mode = $3::text
  AND staged_to IS NOT NULL AND item = $7::bigint
