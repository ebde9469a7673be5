-- One statement, so one moment: what is counted and what is confirmed are the
-- same events. A bucket has as many sealed generations as there are seals that
-- cover it.
WITH edge AS MATERIALIZED (
  SELECT o.as_of, o.open + interval '5 minutes' AS open_end,
    greatest(o.open + CASE WHEN $5::boolean THEN interval '5 minutes' ELSE interval '0' END, $4::timestamptz) AS cold_until
  FROM (
    SELECT n.as_of, date_bin('5 minutes', n.as_of, 'epoch') AS open
    FROM (SELECT clock_timestamp() AS as_of OFFSET 0) AS n
  ) AS o
),
sealed AS MATERIALIZED (
  SELECT coalesce(max(generation), 0) AS seals, max(before) AS before
  FROM {schema}.fencepost_bucket_seals
  WHERE tenant_key = $1 AND feature = $2
)
SELECT e.as_of, e.cold_until, e.open_end, n.before, t.sum, t.count, t.min, t.max,
  ARRAY(
    SELECT (
      SELECT coalesce(sum(c.amount), 0)::text
      FROM {schema}.fencepost_credits AS c
      WHERE c.tenant_key = $1 AND c.meter = m.meter AND c.seq >= coalesce((
        SELECT max(r.seq) FROM {schema}.fencepost_credits AS r
        WHERE r.tenant_key = $1 AND r.meter = m.meter AND r.kind = 'reset'), 0))
    FROM unnest($6::text[]) WITH ORDINALITY AS m (meter, n) ORDER BY m.n),
  ARRAY(
    SELECT v.event_id FROM {schema}.fencepost_events AS v
    WHERE v.tenant_key = $1 AND v.event_id = ANY ($7::text[]) AND v.occurred_at < e.cold_until),
  ARRAY(
    SELECT r.receipt_id FROM {schema}.fencepost_cloudevents AS r
    WHERE r.tenant_key = $1 AND r.receipt_id = ANY ($8::text[]) AND r.occurred_at < e.cold_until),
  EXISTS (SELECT FROM {schema}.fencepost_subscriptions WHERE tenant_key = $1)
    OR EXISTS (SELECT FROM {schema}.fencepost_credits WHERE tenant_key = $1)
    OR EXISTS (SELECT FROM {schema}.fencepost_events WHERE tenant_key = $1)
FROM edge AS e
CROSS JOIN sealed AS n
CROSS JOIN LATERAL (
  SELECT coalesce(sum(b.sum), 0)::text AS sum, coalesce(sum(b.count), 0)::bigint AS count, min(b.min)::text AS min, max(b.max)::text AS max
  FROM {schema}.fencepost_buckets AS b
  WHERE b.tenant_key = $1 AND b.feature = $2 AND b.bucket_start < e.cold_until
    AND b.projection = (SELECT active FROM {schema}.fencepost_generations WHERE scope = 1)
    AND ($3::jsonb IS NULL OR b.dimensions::jsonb @> $3::jsonb)
    AND (b.bucket_start >= coalesce(n.before, '-infinity') OR b.generation > n.seals - coalesce((
      SELECT s.generation FROM {schema}.fencepost_bucket_seals AS s
      WHERE s.tenant_key = $1 AND s.feature = $2 AND s.before <= b.bucket_start
      ORDER BY s.before DESC LIMIT 1), 0))
) AS t
