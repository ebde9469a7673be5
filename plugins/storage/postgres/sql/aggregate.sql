-- width_bucket finds the window by halving; the names of the groups are values.
WITH pruned AS (
  SELECT max(before) AS before
  FROM {schema}.fencepost_pruned
  WHERE tenant_key = $1 AND feature = $2 AND before > ($3::timestamptz[])[1]
), grouped AS (
  SELECT width_bucket(e.occurred_at, $3) - 1 AS w,
    (e.dimensions ->> ($4::text[])[1]) COLLATE "C" AS g1, (e.dimensions ->> $4[2]) COLLATE "C" AS g2,
    (e.dimensions ->> $4[3]) COLLATE "C" AS g3, (e.dimensions ->> $4[4]) COLLATE "C" AS g4,
    (e.dimensions ->> $4[5]) COLLATE "C" AS g5, (e.dimensions ->> $4[6]) COLLATE "C" AS g6,
    (e.dimensions ->> $4[7]) COLLATE "C" AS g7, (e.dimensions ->> $4[8]) COLLATE "C" AS g8,
    sum(e.effect) AS sum,
    count(*) FILTER (WHERE e.kind = 'usage') - count(*) FILTER (WHERE e.reverses) AS count
  FROM {schema}.fencepost_events AS e
  WHERE e.tenant_key = $1 AND e.feature = $2
    AND e.occurred_at >= $3[1] AND e.occurred_at < $3[cardinality($3)]
    AND ($5::jsonb IS NULL OR e.dimensions @> $5::jsonb)
  GROUP BY w, g1, g2, g3, g4, g5, g6, g7, g8
)
SELECT p.before, g.w, g.g1, g.g2, g.g3, g.g4, g.g5, g.g6, g.g7, g.g8, g.sum::text, g.count,
  NULL::text, NULL::text, NULL::text, 0::bigint
FROM pruned AS p
LEFT JOIN grouped AS g ON true
ORDER BY g.w, g.g1 NULLS FIRST, g.g2 NULLS FIRST, g.g3 NULLS FIRST, g.g4 NULLS FIRST,
  g.g5 NULLS FIRST, g.g6 NULLS FIRST, g.g7 NULLS FIRST, g.g8 NULLS FIRST
LIMIT $6
