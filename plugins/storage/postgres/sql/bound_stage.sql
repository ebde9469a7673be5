UPDATE {schema}.fencepost_report_bounds SET staged_to = $8::text::numeric, item = $9::bigint, updated_at = clock_timestamp()
WHERE tenant_key = $4::text AND feature = $5::text AND period_start = $6::timestamptz
  AND exporter = $1::text AND destination_account = $2::text AND mode = $3::text
  AND staged_to IS NULL AND acked = $7::text::numeric
