-- The slice leaves the seed and the build in one statement, so that no row is
-- subtracted twice. A seed has one row for each row of the build.
WITH slice AS MATERIALIZED (
  SELECT tenant_key, feature, period_start
  FROM {schema}.fencepost_totals
  WHERE generation = -$1::bigint AND generation <= 0
  ORDER BY tenant_key, feature, period_start
  LIMIT $2
), gone AS (
  DELETE FROM {schema}.fencepost_totals AS t
  USING slice AS s
  WHERE (t.tenant_key, t.feature, t.period_start, t.generation)
      = (s.tenant_key, s.feature, s.period_start, -$1::bigint)
  RETURNING t.tenant_key, t.feature, t.period_start, t.quantity, t.events, t.count
), held AS MATERIALIZED (
  SELECT g.tenant_key, g.feature, g.period_start, g.quantity, g.events, g.count
  FROM gone AS g
  JOIN {schema}.fencepost_totals AS t
    ON (t.tenant_key, t.feature, t.period_start, t.generation)
     = (g.tenant_key, g.feature, g.period_start, $1::bigint)
  ORDER BY g.tenant_key, g.feature, g.period_start
  FOR UPDATE OF t
), moved AS (
  UPDATE {schema}.fencepost_totals AS t
  SET quantity = t.quantity - h.quantity, events = t.events - h.events, count = t.count - h.count
  FROM held AS h
  WHERE (t.tenant_key, t.feature, t.period_start, t.generation)
      = (h.tenant_key, h.feature, h.period_start, $1::bigint)
  RETURNING 1
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM moved)
