WITH found AS MATERIALIZED (
  SELECT s.item, s.state AS was, s.settled_at IS NULL AS was_open
  FROM {schema}.fencepost_outbox_state AS s
  JOIN {schema}.fencepost_outbox_items AS i ON i.item = s.item
  WHERE s.settled_at IS NULL AND s.superseded_by IS NULL AND i.created_at <= $1::timestamptz
    AND (s.state IN ('pending', 'leased', 'quarantined')
      OR s.state = 'uncertain' AND (NOT s.unresolved OR s.first_unresolved_at IS NULL))
  ORDER BY s.item LIMIT $3::integer
  FOR NO KEY UPDATE OF s
),
moved AS (
  UPDATE {schema}.fencepost_outbox_state AS u SET
    state = 'uncertain', unresolved = true, first_unresolved_at = coalesce(u.first_unresolved_at, $2::timestamptz),
    lease_owner = NULL, lease_expires_at = NULL, lease_token = u.lease_token + 1, claimed_at = clock_timestamp(),
    last_error = CASE WHEN u.state = 'uncertain' THEN u.last_error ELSE jsonb_build_object('code', 'restored')::text END
  FROM found AS f WHERE u.item = f.item
  RETURNING u.route, u.state, f.was
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT d.route, d.state, sum(d.n), sum(d.n)
  FROM (SELECT route, state, 1 AS n FROM moved UNION ALL SELECT route, was, -1 FROM moved) AS d
  GROUP BY d.route, d.state
  HAVING sum(d.n) <> 0
)
SELECT count(*) FROM moved
