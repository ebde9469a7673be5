SELECT acked::text, staged_to::text, item FROM {schema}.fencepost_report_bounds
WHERE tenant_key = $4::text AND feature = $5::text AND period_start = $6::timestamptz
  AND exporter = $1::text AND destination_account = $2::text AND mode = $3::text
FOR NO KEY UPDATE
