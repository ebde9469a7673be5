SELECT id, exporter, destination_account, mode, from_at, to_at, started_at, finished_at, error, lines, differing, confirmed
FROM {schema}.fencepost_reconciliations
WHERE ($1::text IS NULL OR exporter = $1)
  AND ($2::timestamptz IS NULL OR started_at < $2)
  AND ($3::text IS NULL OR id = $3)
ORDER BY started_at DESC, id DESC LIMIT $4::integer
