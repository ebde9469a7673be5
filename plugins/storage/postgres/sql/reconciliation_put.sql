INSERT INTO {schema}.fencepost_reconciliations AS r
  (id, exporter, destination_account, mode, from_at, to_at, started_at, finished_at, error, lines, differing, confirmed)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::timestamptz, $6::timestamptz, $7::timestamptz, $8::timestamptz,
  $9::text, $10::bigint, $11::bigint, $12::bigint)
ON CONFLICT (id) DO UPDATE SET
  exporter = excluded.exporter, destination_account = excluded.destination_account, mode = excluded.mode,
  from_at = excluded.from_at, to_at = excluded.to_at, started_at = excluded.started_at,
  finished_at = excluded.finished_at, error = excluded.error, lines = excluded.lines,
  differing = excluded.differing, confirmed = excluded.confirmed
WHERE r.finished_at IS NULL
