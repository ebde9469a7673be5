SELECT b.exporter, b.destination_account, b.mode, b.tenant_key, b.feature, b.period_start, b.period_end,
       b.acked::text, b.staged_to::text, b.item, s.state, s.settled_at IS NOT NULL, b.updated_at
FROM (
  SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
    AS k (exporter, destination_account, mode, tenant_key, feature, period_start)) AS k
JOIN {schema}.fencepost_report_bounds AS b ON b.tenant_key = k.tenant_key AND b.feature = k.feature
  AND b.period_start = k.period_start AND b.exporter = k.exporter
  AND b.destination_account = k.destination_account AND b.mode = k.mode
LEFT JOIN {schema}.fencepost_outbox_state AS s ON s.item = b.item
ORDER BY b.exporter, b.destination_account, b.mode, b.tenant_key, b.feature, b.period_start
