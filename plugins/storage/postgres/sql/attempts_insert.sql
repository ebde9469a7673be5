INSERT INTO {schema}.fencepost_attempts (
  item, lease_token, owner, started_at, finished_at, host_class, outcome, evidence,
  status, request_id, code, message, decided, fenced, recorded_at)
SELECT a.item, a.lease_token, a.owner, a.started_at, a.finished_at, coalesce(a.host_class, ''),
       coalesce(a.outcome, ''), coalesce(a.evidence, ''), coalesce(a.status, 0), coalesce(a.request_id, ''),
       coalesce(a.code, ''), coalesce(a.message, ''), coalesce(a.decided, ''), coalesce(a.fenced, false),
       clock_timestamp()
FROM unnest(
  $1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::text[],
  $8::text[], $9::integer[], $10::text[], $11::text[], $12::text[], $13::text[], $14::boolean[]
) WITH ORDINALITY AS a (item, lease_token, owner, started_at, finished_at, host_class, outcome, evidence,
  status, request_id, code, message, decided, fenced, n)
ORDER BY a.n
