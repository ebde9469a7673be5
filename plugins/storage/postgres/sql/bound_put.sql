INSERT INTO {schema}.fencepost_report_bounds
  (exporter, destination_account, mode, tenant_key, feature, period_start, period_end, acked, updated_at)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::timestamptz, $7::timestamptz, 0, clock_timestamp())
ON CONFLICT DO NOTHING
