-- What a deliverer asks for: leased items, each under its token, become
-- something else. All else is move_full.
-- The rows are updated in the order of the parameters, which is that of the
-- items, so that two callers cannot wait for each other; what a wait ended with
-- is compared again by the update. The states come with the rows or hidden, never
-- as a constant of a partial index: see outbox_planner.
-- The gauge is told what a leased item was before, which an update does not
-- answer: one that is settled, which nobody makes, is left to move_full too.
-- What is the same for all rows is sent once, and not for each.
WITH moved AS (
  UPDATE {schema}.fencepost_outbox_state AS u SET
    state = coalesce(m.state, $15::text),
    lease_owner = CASE WHEN coalesce(m.state, $15::text) = 'leased' THEN u.lease_owner END,
    lease_expires_at = CASE WHEN coalesce(m.state, $15::text) = 'leased' THEN u.lease_expires_at END,
    next_attempt_at = coalesce(t.now + m.delay, u.next_attempt_at),
    attempts = CASE WHEN m.return_attempt THEN greatest(u.attempts - 1, 0) ELSE u.attempts END,
    unresolved = u.unresolved OR coalesce(m.mark_unresolved, false),
    first_unresolved_at = CASE WHEN m.mark_unresolved THEN coalesce(u.first_unresolved_at, u.claimed_at)
                               ELSE u.first_unresolved_at END,
    provider_ref = coalesce(m.provider_ref, u.provider_ref),
    accepted_at = CASE WHEN coalesce(m.accepted, $16::boolean) THEN t.now ELSE u.accepted_at END,
    confirmed_at = CASE WHEN coalesce(m.confirmed, $17::boolean) THEN t.now ELSE u.confirmed_at END,
    confirmed_by = coalesce(m.confirmed_by, u.confirmed_by),
    last_error = coalesce(m.last_error, u.last_error),
    quarantine_reason = coalesce(m.reason, u.quarantine_reason),
    -- What is disputed stays open when it is accepted or confirmed. Q25
    settled_at = CASE WHEN coalesce(m.settled, $18::boolean)
                       AND NOT ((coalesce(m.accepted, $16::boolean) OR coalesce(m.confirmed, $17::boolean)) AND u.disputed IS NOT NULL)
                      THEN t.now END
  FROM (SELECT clock_timestamp() AS now OFFSET 0) AS t
  CROSS JOIN unnest(
    $1::bigint[], $2::bigint[], $3::boolean[],
    $4::text[], $5::interval[], $6::boolean[], $7::boolean[], $8::text[], $9::boolean[],
    $10::boolean[], $11::text[], $12::text[], $13::text[], $14::boolean[]
  ) AS m (item, token, was_unresolved,
          state, delay, return_attempt, mark_unresolved, provider_ref, accepted,
          confirmed, confirmed_by, last_error, reason, settled)
  WHERE u.item BETWEEN m.item AND m.item
    AND coalesce(u.superseded_by, 0) = 0 AND u.state || '' = 'leased' AND u.settled_at IS NULL
    AND (m.token IS NULL OR u.lease_token = m.token)
    AND (m.was_unresolved IS NULL OR u.unresolved = m.was_unresolved)
  RETURNING u.item, u.route, u.state, u.settled_at IS NULL AS is_open
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT d.route, d.state, sum(d.items), sum(d.open)
  FROM (
    SELECT route, state, count(*) AS items, count(*) FILTER (WHERE is_open) AS open FROM moved GROUP BY route, state) AS c
  CROSS JOIN LATERAL (VALUES
    (c.route, c.state, c.items, c.open), (c.route, 'leased', -c.items, -c.items)) AS d (route, state, items, open)
  GROUP BY d.route, d.state
  HAVING sum(d.items) <> 0 OR sum(d.open) <> 0
)
SELECT item FROM moved
