-- What the next events of a scan add to buckets. $4 names the features that have
-- any, and $5 the dimensions of each, as JSON; the answer has their values in
-- that order. Events are kept apart by how many seals of their feature were made
-- before them: within a bucket that decides which generation they count in, and
-- any seq of a group stands for all of it.
SELECT e.tenant_key, e.feature, e.bucket_start, e.kept, min(e.seq), sum(e.effect)::text,
  count(*) FILTER (WHERE e.kind = 'usage') - count(*) FILTER (WHERE e.kind = 'correction' AND e.reverses),
  min(e.quantity) FILTER (WHERE e.kind = 'usage')::text, max(e.quantity) FILTER (WHERE e.kind = 'usage')::text,
  bool_or(e.kind = 'correction')
FROM (
  SELECT p.seq, p.tenant_key, p.feature, p.effect, p.quantity, p.kind, p.reverses,
    date_bin('5 minutes', p.occurred_at, '0001-01-01Z') AS bucket_start,
    ARRAY(SELECT p.dimensions ->> d.name FROM jsonb_array_elements_text(f.dimensions) WITH ORDINALITY AS d (name, n) ORDER BY d.n) AS kept,
    CASE WHEN EXISTS (SELECT FROM {schema}.fencepost_bucket_seals) THEN (
      SELECT s.generation FROM {schema}.fencepost_bucket_seals AS s
      WHERE s.tenant_key = p.tenant_key AND s.feature = p.feature AND s.seq < p.seq
      ORDER BY s.seq DESC, s.generation DESC LIMIT 1) END AS seals
  FROM (
    SELECT seq, tenant_key, feature, effect, quantity, kind, reverses, occurred_at, dimensions
    FROM {schema}.fencepost_events
    WHERE seq > $1 AND seq <= $2
    ORDER BY seq LIMIT $3) AS p
  JOIN unnest($4::text[], $5::jsonb[]) AS f (feature, dimensions) ON f.feature = p.feature) AS e
GROUP BY e.tenant_key, e.feature, e.bucket_start, e.kept, e.seals
