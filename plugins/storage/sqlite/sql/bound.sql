SELECT b.exporter, b.destination_account, b.mode, b.tenant_key, b.feature, b.period_start, b.period_end,
       b.acked, b.staged_to, b.item, s.state, s.settled_at IS NOT NULL, b.updated_at
FROM fencepost_report_bounds AS b LEFT JOIN fencepost_outbox_state AS s ON s.item = b.item
WHERE b.exporter = ?1 AND b.destination_account = ?2 AND b.mode = ?3
  AND b.tenant_key = ?4 AND b.feature = ?5 AND b.period_start = ?6
