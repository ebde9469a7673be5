-- The cast of the dimensions is once for each row: OFFSET 0 keeps it so.
SELECT width_bucket(b.bucket_start, $3) - 1 AS w,
  (b.d ->> ($4::text[])[1]) COLLATE "C" AS g1, (b.d ->> $4[2]) COLLATE "C" AS g2,
  (b.d ->> $4[3]) COLLATE "C" AS g3, (b.d ->> $4[4]) COLLATE "C" AS g4,
  (b.d ->> $4[5]) COLLATE "C" AS g5, (b.d ->> $4[6]) COLLATE "C" AS g6,
  (b.d ->> $4[7]) COLLATE "C" AS g7, (b.d ->> $4[8]) COLLATE "C" AS g8,
  sum(b.sum)::text, sum(b.count)::bigint, min(b.min)::text, max(b.max)::text, bool_or(b.reversed)
FROM (
  SELECT bucket_start, dimensions::jsonb AS d, sum, count, min, max, reversed
  FROM {schema}.fencepost_buckets
  WHERE tenant_key = $1 AND feature = $2
    AND bucket_start >= ($3::timestamptz[])[1] AND bucket_start < $3[cardinality($3)]
    AND projection = (SELECT active FROM {schema}.fencepost_generations WHERE scope = 1)
  OFFSET 0
) AS b
WHERE $5::jsonb IS NULL OR b.d @> $5::jsonb
GROUP BY w, g1, g2, g3, g4, g5, g6, g7, g8
ORDER BY w, g1 NULLS FIRST, g2 NULLS FIRST, g3 NULLS FIRST, g4 NULLS FIRST,
  g5 NULLS FIRST, g6 NULLS FIRST, g7 NULLS FIRST, g8 NULLS FIRST
LIMIT $6
