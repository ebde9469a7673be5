-- What is the same for all lines is sent once, and not for each.
INSERT INTO {schema}.fencepost_attempts (
  item, lease_token, owner, started_at, finished_at, host_class, outcome, evidence,
  status, request_id, code, message, decided, fenced, recorded_at)
SELECT a.item, a.lease_token, coalesce(a.owner, $15::text), a.started_at, a.finished_at,
       coalesce(a.host_class, $16::text), coalesce(a.outcome, $17::text), coalesce(a.evidence, $18::text),
       coalesce(a.status, $19::integer), coalesce(a.request_id, ''), coalesce(a.code, $20::text),
       coalesce(a.message, $21::text), coalesce(a.decided, $22::text), coalesce(a.fenced, false),
       clock_timestamp()
FROM unnest(
  $1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::text[],
  $8::text[], $9::integer[], $10::text[], $11::text[], $12::text[], $13::text[], $14::boolean[]
) WITH ORDINALITY AS a (item, lease_token, owner, started_at, finished_at, host_class, outcome, evidence,
  status, request_id, code, message, decided, fenced, n)
ORDER BY a.n
