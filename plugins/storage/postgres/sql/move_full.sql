-- As move, with all that an operator may expect and change. The rows were locked
-- by the statement before: what is compared here is what is written over.
WITH m AS MATERIALIZED (
  SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::boolean[],
    $6::text[], $7::interval[], $8::boolean[], $9::boolean[], $10::text[], $11::boolean[],
    $12::boolean[], $13::text[], $14::text[], $15::text[], $16::boolean[],
    $17::boolean[], $18::integer[], $19::interval[], $20::interval[], $21::timestamptz[],
    $22::boolean[], $23::integer[], $24::text[], $25::text[], $26::text[], $27::text[], $28::boolean[]
  ) AS m (item, was, token, mapping, was_unresolved,
          state, delay, return_attempt, mark_unresolved, provider_ref, accepted, confirmed,
          confirmed_by, last_error, reason, settled,
          was_settled, was_attempts, quiet, within, trusted,
          clear_reason, add_budget, disputed, method, customer, serial_key, release)
),
t AS MATERIALIZED (SELECT clock_timestamp() AS now),
locked AS MATERIALIZED (
  SELECT m.*, t.now, o.settled_at IS NULL AS was_open
  FROM t CROSS JOIN m
  JOIN {schema}.fencepost_outbox_state AS o ON o.item = ANY (ARRAY[m.item])
  JOIN {schema}.fencepost_outbox_items AS i ON i.item = ANY (ARRAY[m.item])
  WHERE coalesce(o.superseded_by, 0) = 0 AND o.state = m.was
    AND (m.token IS NULL OR o.lease_token = m.token)
    AND (m.was_unresolved IS NULL OR o.unresolved = m.was_unresolved)
    AND (m.mapping IS NULL OR i.mapping_version = m.mapping)
    AND (m.was_settled IS NULL OR (o.settled_at IS NOT NULL) = m.was_settled)
    AND (m.was_attempts IS NULL OR o.attempts = m.was_attempts)
    AND (m.quiet IS NULL OR o.claimed_at IS NULL OR t.now - o.claimed_at >= m.quiet)
    AND (m.within IS NULL OR o.first_unresolved_at IS NULL OR t.now - o.first_unresolved_at < m.within)
    AND (m.trusted IS NULL OR o.first_unresolved_at IS NULL OR o.first_unresolved_at >= m.trusted)
    AND (m.method IS NULL OR o.method IS NULL OR o.method = m.method)
    AND (m.customer IS NULL OR i.customer = '' OR i.customer = m.customer)
  ORDER BY m.item
  FOR NO KEY UPDATE OF o
),
moved AS (
  UPDATE {schema}.fencepost_outbox_state AS u SET
    state = l.state,
    lease_owner = CASE WHEN l.state = 'leased' THEN u.lease_owner END,
    lease_expires_at = CASE WHEN l.state = 'leased' THEN u.lease_expires_at END,
    next_attempt_at = coalesce(l.now + l.delay, u.next_attempt_at, CASE WHEN l.state = 'pending' THEN l.now END),
    attempts = CASE WHEN l.return_attempt THEN greatest(u.attempts - 1, 0) ELSE u.attempts END,
    unresolved = u.unresolved OR l.mark_unresolved,
    first_unresolved_at = CASE WHEN l.mark_unresolved THEN coalesce(u.first_unresolved_at, u.claimed_at)
                               ELSE u.first_unresolved_at END,
    provider_ref = coalesce(l.provider_ref, u.provider_ref),
    accepted_at = CASE WHEN l.accepted THEN l.now ELSE u.accepted_at END,
    confirmed_at = CASE WHEN l.confirmed THEN l.now ELSE u.confirmed_at END,
    confirmed_by = coalesce(l.confirmed_by, u.confirmed_by),
    last_error = coalesce(l.last_error, u.last_error),
    quarantine_reason = coalesce(l.reason, CASE WHEN l.clear_reason THEN NULL ELSE u.quarantine_reason END),
    attempt_budget = u.attempt_budget + l.add_budget,
    disputed = CASE WHEN l.disputed IS NULL THEN u.disputed ELSE nullif(l.disputed, '') END,
    method = coalesce(l.method, u.method),
    serial_key = CASE WHEN l.customer IS NULL THEN u.serial_key ELSE coalesce(l.serial_key, u.serial_key) END,
    waits_for = CASE WHEN l.release THEN NULL ELSE u.waits_for END,
    -- What is disputed stays open when it is accepted or confirmed. Q25
    settled_at = CASE WHEN l.settled AND (l.accepted OR l.confirmed) AND CASE WHEN l.disputed IS NULL THEN u.disputed ELSE nullif(l.disputed, '') END IS NOT NULL THEN u.settled_at
                      WHEN l.settled THEN l.now WHEN NOT l.settled THEN NULL ELSE u.settled_at END
  FROM locked AS l WHERE u.item = ANY (ARRAY[l.item])
  RETURNING u.item, u.route, u.state, u.settled_at IS NULL AS is_open, l.was, l.was_open
),
named AS (
  UPDATE {schema}.fencepost_outbox_items AS i SET customer = l.customer
  FROM locked AS l WHERE i.item = ANY (ARRAY[l.item]) AND l.customer <> '' AND i.customer = ''
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
