SELECT b.exporter, b.destination_account, b.mode, b.tenant_key, b.feature, b.period_start, b.period_end,
       b.acked, b.staged_to, b.item, s.state, s.settled_at IS NOT NULL, b.updated_at
FROM fencepost_report_bounds AS b LEFT JOIN fencepost_outbox_state AS s ON s.item = b.item
WHERE (b.exporter, b.destination_account, b.mode, b.tenant_key, b.feature, b.period_start) > (?1, ?2, ?3, ?4, ?5, ?6)
  AND (?8 IS NULL OR b.exporter = ?8)
  AND (?9 IS NULL OR b.tenant_key = ?9)
  AND (?10 IS NULL OR b.feature = ?10)
  AND (NOT ?11 OR b.item IS NOT NULL)
ORDER BY b.exporter, b.destination_account, b.mode, b.tenant_key, b.feature, b.period_start
LIMIT ?7
