WITH o AS MATERIALIZED (
  SELECT s.item, s.settled_at IS NULL AS was_open FROM {schema}.fencepost_outbox_state AS s
  WHERE s.item = ANY ($1::bigint[]) AND s.state || '' = 'accepted' AND coalesce(s.superseded_by, 0) = 0
),
t AS MATERIALIZED (SELECT clock_timestamp() AS now),
moved AS (
  UPDATE {schema}.fencepost_outbox_state AS u SET
    state = 'confirmed', confirmed_at = t.now, confirmed_by = $2::text, settled_at = coalesce(u.settled_at, t.now)
  FROM o CROSS JOIN t WHERE u.item = o.item
  RETURNING u.route, o.was_open
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT route, 'confirmed', count(*), 0 FROM moved GROUP BY route
  UNION ALL
  SELECT route, 'accepted', -count(*), -count(*) FILTER (WHERE was_open) FROM moved GROUP BY route
)
SELECT count(*) FROM moved
