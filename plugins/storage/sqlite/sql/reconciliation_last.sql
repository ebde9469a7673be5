SELECT coalesce(max(line), 0) FROM fencepost_reconciliation_lines WHERE run = ?1
