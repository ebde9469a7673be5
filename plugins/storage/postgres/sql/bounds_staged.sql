-- What is on its way is little among much.
SELECT b.exporter, b.destination_account, b.mode, b.tenant_key, b.feature, b.period_start, b.period_end,
       b.acked::text, b.staged_to::text, b.item, s.state, s.settled_at IS NOT NULL, b.updated_at
FROM {schema}.fencepost_report_bounds AS b
LEFT JOIN {schema}.fencepost_outbox_state AS s ON s.item = b.item
WHERE (b.exporter, b.destination_account, b.mode, b.tenant_key, b.feature, b.period_start)
    > ($1::text, $2::text, $3::text, $4::text, $5::text, $6::timestamptz)
  AND ($8::text IS NULL OR b.exporter = $8)
  AND ($9::text IS NULL OR b.tenant_key = $9)
  AND ($10::text IS NULL OR b.feature = $10)
  AND $11::boolean AND b.staged_to IS NOT NULL
ORDER BY b.exporter, b.destination_account, b.mode, b.tenant_key, b.feature, b.period_start LIMIT $7::integer
