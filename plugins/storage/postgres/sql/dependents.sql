-- Evidence against items concerns what depends on them and does not wait.
WITH m AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::boolean[]) AS m (item, disputed, settled)
),
locked AS MATERIALIZED (
  SELECT m.*, w.item AS dependent, clock_timestamp() AS now, w.settled_at IS NULL AS was_open
  FROM m
  CROSS JOIN LATERAL (
    SELECT i.item FROM {schema}.fencepost_outbox_items AS i WHERE i.depends_on = m.item
    ORDER BY i.depends_on, i.item OFFSET 0) AS d
  JOIN {schema}.fencepost_outbox_state AS w ON w.item = ANY (ARRAY[d.item])
  WHERE coalesce(w.superseded_by, w.waits_for, 0) = 0
  ORDER BY d.item
  FOR NO KEY UPDATE OF w
),
moved AS (
  UPDATE {schema}.fencepost_outbox_state AS u SET
    disputed = CASE WHEN l.disputed IS NULL THEN u.disputed ELSE nullif(l.disputed, '') END,
    settled_at = CASE l.settled WHEN true THEN l.now WHEN false THEN NULL ELSE u.settled_at END
  FROM locked AS l WHERE u.item = ANY (ARRAY[l.dependent])
  RETURNING u.route, u.state, u.settled_at IS NULL AS is_open, l.was_open
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT route, state, 0, sum(is_open::integer - was_open::integer)
  FROM moved GROUP BY route, state
  HAVING sum(is_open::integer - was_open::integer) <> 0
)
SELECT count(*) FROM moved
