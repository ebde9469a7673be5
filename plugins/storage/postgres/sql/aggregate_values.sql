-- As aggregate, with what is over single usage events: each that is not fully
-- reversed, with its quantity as corrected. Corrections have the time and the
-- dimensions of their original, so they are among the rows that are selected.
WITH pruned AS (
  SELECT max(before) AS before
  FROM {schema}.fencepost_pruned
  WHERE tenant_key = $1 AND feature = $2 AND before > ($3::timestamptz[])[1]
), corrected AS MATERIALIZED (
  SELECT c.original_event_id, sum(c.effect) AS effect, bool_or(c.reverses) AS reversed
  FROM {schema}.fencepost_events AS c
  WHERE c.tenant_key = $1 AND c.feature = $2 AND c.original_event_id IS NOT NULL
    AND c.occurred_at >= $3[1] AND c.occurred_at < $3[cardinality($3)]
    AND ($5::jsonb IS NULL OR c.dimensions @> $5::jsonb)
  GROUP BY c.original_event_id
), selected AS (
  SELECT e.occurred_at, e.seq, e.kind, e.effect, e.reverses, e.dimensions,
    CASE WHEN e.kind = 'usage' AND c.reversed IS NOT TRUE
      THEN e.quantity + coalesce(c.effect, 0) END AS standing
  FROM {schema}.fencepost_events AS e
  LEFT JOIN corrected AS c ON c.original_event_id = e.event_id
  WHERE e.tenant_key = $1 AND e.feature = $2
    AND e.occurred_at >= $3[1] AND e.occurred_at < $3[cardinality($3)]
    AND ($5::jsonb IS NULL OR e.dimensions @> $5::jsonb)
), grouped AS (
  SELECT width_bucket(s.occurred_at, $3) - 1 AS w,
    (s.dimensions ->> ($4::text[])[1]) COLLATE "C" AS g1, (s.dimensions ->> $4[2]) COLLATE "C" AS g2,
    (s.dimensions ->> $4[3]) COLLATE "C" AS g3, (s.dimensions ->> $4[4]) COLLATE "C" AS g4,
    (s.dimensions ->> $4[5]) COLLATE "C" AS g5, (s.dimensions ->> $4[6]) COLLATE "C" AS g6,
    (s.dimensions ->> $4[7]) COLLATE "C" AS g7, (s.dimensions ->> $4[8]) COLLATE "C" AS g8,
    sum(s.effect) AS sum,
    count(*) FILTER (WHERE s.kind = 'usage') - count(*) FILTER (WHERE s.reverses) AS count,
    min(s.standing) AS min, max(s.standing) AS max,
    (max(ARRAY[extract(epoch FROM s.occurred_at), s.seq::numeric, s.standing])
      FILTER (WHERE $8 AND s.standing IS NOT NULL))[3] AS latest,
    count(DISTINCT (s.dimensions ->> $7::text) COLLATE "C")
      FILTER (WHERE $7::text IS NOT NULL AND s.standing IS NOT NULL) AS distinct_values
  FROM selected AS s
  GROUP BY w, g1, g2, g3, g4, g5, g6, g7, g8
)
SELECT p.before, g.w, g.g1, g.g2, g.g3, g.g4, g.g5, g.g6, g.g7, g.g8, g.sum::text, g.count,
  g.min::text, g.max::text, g.latest::text, g.distinct_values
FROM pruned AS p
LEFT JOIN grouped AS g ON true
ORDER BY g.w, g.g1 NULLS FIRST, g.g2 NULLS FIRST, g.g3 NULLS FIRST, g.g4 NULLS FIRST,
  g.g5 NULLS FIRST, g.g6 NULLS FIRST, g.g7 NULLS FIRST, g.g8 NULLS FIRST
LIMIT $6
