SELECT run, exporter, destination_account, mode, from_time, to_time, started_at, finished_at, error, lines, differing, confirmed
FROM fencepost_reconciliations
WHERE (?1 IS NULL OR exporter = ?1) AND (?2 IS NULL OR started_at < ?2) AND (?3 IS NULL OR run = ?3)
ORDER BY started_at DESC, run DESC LIMIT ?4
