SELECT finished_at IS NOT NULL FROM fencepost_reconciliations WHERE run = ?1
