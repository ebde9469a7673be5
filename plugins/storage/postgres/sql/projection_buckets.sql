-- The generation of each event is the one it had when it was recorded: seals
-- that were made later do not count. Both seq and before rise from seal to seal.
INSERT INTO {schema}.fencepost_buckets AS b
  (tenant_key, feature, bucket_start, dimensions, generation, projection, sum, count, min, max, reversed)
SELECT d.tenant_key COLLATE "C", d.feature COLLATE "C", d.bucket_start, d.dimensions COLLATE "C", 1 + greatest(0, n.seals - k.seals) AS generation,
  $1::bigint, sum(d.sum::numeric), sum(d.count)::bigint, min(d.min::numeric), max(d.max::numeric), bool_or(d.reversed)
FROM unnest($2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::bigint[], $7::text[], $8::bigint[],
  $9::text[], $10::text[], $11::boolean[])
  AS d (tenant_key, feature, bucket_start, dimensions, seq, sum, count, min, max, reversed)
CROSS JOIN LATERAL (
  SELECT coalesce((
    SELECT s.generation FROM {schema}.fencepost_bucket_seals AS s
    WHERE s.tenant_key = d.tenant_key AND s.feature = d.feature AND s.seq < d.seq
    ORDER BY s.seq DESC, s.generation DESC LIMIT 1), 0) AS seals
) AS n
CROSS JOIN LATERAL (
  SELECT coalesce((
    SELECT s.generation FROM {schema}.fencepost_bucket_seals AS s
    WHERE s.tenant_key = d.tenant_key AND s.feature = d.feature AND s.before <= d.bucket_start
    ORDER BY s.before DESC LIMIT 1), 0) AS seals
) AS k
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (tenant_key, feature, bucket_start, dimensions, generation, projection) DO UPDATE
SET sum = b.sum + excluded.sum, count = b.count + excluded.count, min = least(b.min, excluded.min),
  max = greatest(b.max, excluded.max), reversed = b.reversed OR excluded.reversed
