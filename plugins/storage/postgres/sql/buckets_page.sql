-- A bucket has as many sealed generations as there are seals that cover it.
-- Seals rise in time, so these are all but those up to its start.
SELECT b.bucket_start, b.dimensions, b.generation, b.generation <= n.seals - k.seals,
  b.sum::text, b.count, b.min::text, b.max::text, b.reversed
FROM {schema}.fencepost_buckets AS b
CROSS JOIN (
  SELECT coalesce(max(generation), 0) AS seals
  FROM {schema}.fencepost_bucket_seals
  WHERE tenant_key = $1 AND feature = $2
) AS n
CROSS JOIN LATERAL (
  SELECT coalesce((
    SELECT s.generation FROM {schema}.fencepost_bucket_seals AS s
    WHERE s.tenant_key = $1 AND s.feature = $2 AND s.before <= b.bucket_start
    ORDER BY s.before DESC LIMIT 1), 0) AS seals
) AS k
WHERE b.tenant_key = $1 AND b.feature = $2 AND b.bucket_start >= $3 AND b.bucket_start < $4
  AND b.projection = (SELECT active FROM {schema}.fencepost_generations WHERE scope = 1)
  AND (NOT $5 OR b.generation > n.seals - k.seals)
ORDER BY b.bucket_start, b.dimensions, b.generation
LIMIT $6 OFFSET $7
