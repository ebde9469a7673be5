INSERT INTO fencepost_reconciliations (
  run, exporter, destination_account, mode, from_time, to_time, started_at, finished_at, error, lines, differing, confirmed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (run) DO UPDATE SET
  exporter = excluded.exporter, destination_account = excluded.destination_account, mode = excluded.mode,
  from_time = excluded.from_time, to_time = excluded.to_time, started_at = excluded.started_at,
  finished_at = excluded.finished_at, error = excluded.error, lines = excluded.lines,
  differing = excluded.differing, confirmed = excluded.confirmed
