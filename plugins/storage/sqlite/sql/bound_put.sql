INSERT INTO fencepost_report_bounds (
  exporter, destination_account, mode, tenant_key, feature, period_start, period_end, acked, staged_to, item, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (exporter, destination_account, mode, tenant_key, feature, period_start) DO UPDATE SET
  acked = excluded.acked, staged_to = excluded.staged_to, item = excluded.item, updated_at = excluded.updated_at
