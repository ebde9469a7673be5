-- What became of items changes those that wait for them. To pending leaves
-- the state of a waiting item as it is; to quarantined takes what nobody acts on.
WITH m AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::boolean[], $4::text[], $5::boolean[], $6::interval[], $7::text[])
    AS m (item, state, release, reason, settled, delay, disputed)
),
locked AS MATERIALIZED (
  SELECT m.*, w.item AS waiting, clock_timestamp() AS now, w.state AS was, w.settled_at IS NULL AS was_open
  FROM m
  CROSS JOIN LATERAL (
    SELECT i.item FROM {schema}.fencepost_outbox_state AS i
    WHERE i.waits_for = m.item AND i.superseded_by IS NULL
    ORDER BY i.waits_for, i.item OFFSET 0) AS d
  JOIN {schema}.fencepost_outbox_state AS w ON w.item = ANY (ARRAY[d.item])
  WHERE coalesce(w.superseded_by, 0) = 0 AND coalesce(w.waits_for, 0) = m.item
    AND (m.state = 'pending' OR w.state = 'pending' OR w.state = 'quarantined')
  ORDER BY d.item
  FOR NO KEY UPDATE OF w
),
moved AS (
  UPDATE {schema}.fencepost_outbox_state AS u SET
    waits_for = CASE WHEN l.release THEN NULL ELSE u.waits_for END,
    state = CASE WHEN l.state = 'pending' THEN u.state ELSE l.state END,
    quarantine_reason = CASE WHEN l.state = 'pending' THEN u.quarantine_reason
                             ELSE coalesce(l.reason, u.quarantine_reason) END,
    settled_at = CASE WHEN l.state = 'pending' THEN u.settled_at
                      ELSE CASE l.settled WHEN true THEN l.now WHEN false THEN NULL ELSE u.settled_at END END,
    next_attempt_at = coalesce(l.now + l.delay, u.next_attempt_at),
    disputed = CASE WHEN l.disputed IS NULL THEN u.disputed ELSE nullif(l.disputed, '') END
  FROM locked AS l WHERE u.item = ANY (ARRAY[l.waiting])
  RETURNING u.item, u.route, u.state, u.settled_at IS NULL AS is_open, l.was, l.was_open
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT d.route, d.state, sum(d.items), sum(d.open)
  FROM (
    SELECT route, state, 1 AS items, is_open::integer AS open FROM moved
    UNION ALL
    SELECT route, was, -1, -(was_open::integer) FROM moved) AS d
  GROUP BY d.route, d.state
  HAVING sum(d.items) <> 0 OR sum(d.open) <> 0
)
SELECT count(*) FROM moved
