-- Conditional updates of distinct items. The expected state comes with the row,
-- never as a constant: see outbox_planner.
-- Locks are taken in the order of items, so that two callers cannot wait for
-- each other; what a wait ended with is checked again on the row as it is then.
WITH m AS MATERIALIZED (
  SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::boolean[],
    $6::text[], $7::interval[], $8::boolean[], $9::boolean[], $10::text[], $11::boolean[],
    $12::boolean[], $13::text[], $14::text[], $15::text[], $16::boolean[]
  ) AS m (item, was, token, mapping, was_unresolved,
          state, delay, return_attempt, mark_unresolved, provider_ref, accepted, confirmed,
          confirmed_by, last_error, reason, settled)
),
locked AS MATERIALIZED (
  SELECT m.*, clock_timestamp() AS now, o.settled_at IS NULL AS was_open
  FROM m JOIN {schema}.fencepost_outbox_state AS o ON o.item = ANY (ARRAY[m.item])
  WHERE coalesce(o.superseded_by, 0) = 0 AND o.state = m.was
    AND (m.token IS NULL OR o.lease_token = m.token)
    AND (m.was_unresolved IS NULL OR o.unresolved = m.was_unresolved)
    AND (m.mapping IS NULL OR m.mapping = (
      SELECT i.mapping_version FROM {schema}.fencepost_outbox_items AS i WHERE i.item = m.item))
  ORDER BY m.item
  FOR NO KEY UPDATE OF o
),
moved AS (
  UPDATE {schema}.fencepost_outbox_state AS u SET
    state = l.state,
    lease_owner = CASE WHEN l.state = 'leased' THEN u.lease_owner END,
    lease_expires_at = CASE WHEN l.state = 'leased' THEN u.lease_expires_at END,
    next_attempt_at = coalesce(l.now + l.delay, u.next_attempt_at),
    attempts = CASE WHEN l.return_attempt THEN greatest(u.attempts - 1, 0) ELSE u.attempts END,
    unresolved = u.unresolved OR l.mark_unresolved,
    first_unresolved_at = CASE WHEN l.mark_unresolved THEN coalesce(u.first_unresolved_at, u.claimed_at)
                               ELSE u.first_unresolved_at END,
    provider_ref = coalesce(l.provider_ref, u.provider_ref),
    accepted_at = CASE WHEN l.accepted THEN l.now ELSE u.accepted_at END,
    confirmed_at = CASE WHEN l.confirmed THEN l.now ELSE u.confirmed_at END,
    confirmed_by = coalesce(l.confirmed_by, u.confirmed_by),
    last_error = coalesce(l.last_error, u.last_error),
    quarantine_reason = coalesce(l.reason, u.quarantine_reason),
    -- What is disputed stays open when it is accepted or confirmed. Q25
    settled_at = CASE WHEN l.settled AND (l.accepted OR l.confirmed) AND u.disputed IS NOT NULL THEN u.settled_at
                      WHEN l.settled THEN l.now WHEN NOT l.settled THEN NULL ELSE u.settled_at END
  FROM locked AS l WHERE u.item = ANY (ARRAY[l.item])
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
SELECT item FROM moved
