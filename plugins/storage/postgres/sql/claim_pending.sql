-- Due items, oldest first over the routes: each route is a range of the index,
-- and reading stops after a window. What others have locked or moved meanwhile
-- is passed over, and so is what waits for a live lease of its serial key; that
-- answer holds only under the lock that a claim of serial keys takes first.
-- One instant decides everything here; as a scalar it bounds the index range.
-- For = ANY (ARRAY[...]), state || '' and coalesce see outbox_planner. What waits
-- for another item is in no index that is read here.
-- A row is looked for once: what was seen is locked and updated at its place
-- (ctid). If it moved between the two, its new place is not in the snapshot, and
-- it is not taken now. The lock goes through what was seen in its order, and
-- stops when it has enough; rows are sent while it goes. The first says already
-- how far it will come if nobody holds anything.
WITH t AS MATERIALIZED (SELECT clock_timestamp() AS now),
seen AS MATERIALIZED (
  SELECT d.at, d.item, d.tid,
         d.serial_key <> '' AND d.serial_key IN (
           SELECT h.serial_key FROM {schema}.fencepost_outbox_state AS h
           WHERE h.state = 'leased' AND h.serial_key <> '' AND h.lease_expires_at >= (SELECT now FROM t)
           ORDER BY h.serial_key) AS held
  FROM (
    SELECT c.at, c.item, c.tid, c.serial_key
    FROM unnest($1::bigint[]) AS r (route)
    CROSS JOIN LATERAL (
      SELECT s.next_attempt_at AS at, s.item, s.ctid AS tid, s.serial_key
      FROM {schema}.fencepost_outbox_state AS s
      WHERE s.state = 'pending' AND s.superseded_by IS NULL AND s.waits_for IS NULL AND s.route = r.route
        AND s.next_attempt_at <= (SELECT now FROM t)
        AND (s.next_attempt_at, s.item) > ($2::timestamptz, $3::bigint)
      ORDER BY s.next_attempt_at, s.item LIMIT $4::integer) AS c
    ORDER BY c.at, c.item LIMIT $4::integer) AS d
),
locked AS MATERIALIZED (
  SELECT seen.at, o.ctid AS tid, o.attempts, o.attempt_budget, o.unresolved, o.first_unresolved_at
  FROM seen JOIN {schema}.fencepost_outbox_state AS o ON o.ctid = seen.tid
  WHERE NOT seen.held AND o.state || '' = 'pending' AND coalesce(o.superseded_by, o.waits_for, 0) = 0
    AND o.next_attempt_at <= (SELECT now FROM t)
  LIMIT $5::integer
  FOR NO KEY UPDATE OF o SKIP LOCKED
),
moved AS (
  UPDATE {schema}.fencepost_outbox_state AS u SET
    state = CASE WHEN v.code IS NULL THEN 'leased' ELSE 'uncertain' END,
    lease_token = u.lease_token + 1,
    attempts = CASE WHEN v.code IS NULL THEN u.attempts + 1 ELSE u.attempts END,
    lease_owner = CASE WHEN v.code IS NULL THEN $6::text END,
    claimed_at = CASE WHEN v.code IS NULL THEN v.now ELSE u.claimed_at END,
    lease_expires_at = CASE WHEN v.code IS NULL THEN v.now + $7::interval END,
    first_attempt_at = CASE WHEN v.code IS NULL THEN coalesce(u.first_attempt_at, v.now) ELSE u.first_attempt_at END,
    unresolved = v.unresolved,
    first_unresolved_at = v.first_unresolved_at,
    last_error = CASE WHEN v.code IS NULL THEN u.last_error ELSE jsonb_build_object('code', v.code)::text END
  FROM (
    SELECT l.at, l.tid, l.unresolved, l.first_unresolved_at, t.now,
           CASE WHEN l.attempts >= l.attempt_budget THEN 'attempts_exhausted'
                WHEN l.unresolved AND $8::interval > interval '0'
                 AND (l.first_unresolved_at IS NULL OR t.now - l.first_unresolved_at > $8::interval)
                THEN 'horizon_passed'
                WHEN l.unresolved AND (l.first_unresolved_at IS NULL AND $9::timestamptz IS NOT NULL
                 OR l.first_unresolved_at < $9::timestamptz)
                THEN 'clock_untrusted' END AS code
    FROM locked AS l CROSS JOIN t) AS v
  WHERE u.ctid = v.tid
  RETURNING v.at, v.code, u.item, u.route, u.state, u.serial_key, u.attempts, u.attempt_budget, u.unresolved,
            u.first_attempt_at, u.lease_token, u.settled_at, u.method
),
many AS MATERIALIZED (
  SELECT count(*) AS n, count(*) FILTER (WHERE held) AS held FROM seen
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT c.route, d.state, d.sign * c.items, d.sign * c.open
  FROM (
    SELECT route, state, count(*) AS items, count(*) FILTER (WHERE settled_at IS NULL) AS open
    FROM moved GROUP BY route, state) AS c
  CROSS JOIN LATERAL (VALUES (c.state, 1), ('pending', -1)) AS d (state, sign)
)
SELECT t.now, (SELECT n FROM many), (SELECT held FROM many),
       (SELECT at FROM seen OFFSET (SELECT greatest(n - 1, 0) FROM many)),
       (SELECT item FROM seen OFFSET (SELECT greatest(n - 1, 0) FROM many)),
       (SELECT at FROM seen WHERE NOT held OFFSET $5::integer - 1 LIMIT 1),
       (SELECT item FROM seen WHERE NOT held OFFSET $5::integer - 1 LIMIT 1),
       g.at, g.code, g.item, g.route, g.serial_key, g.attempts, g.attempt_budget, g.unresolved,
       g.first_attempt_at, g.lease_token, g.method, g.depends_on,
       g.tenant_key, g.subject_kind, g.subject_ref, g.exporter, g.destination_account, g.mode,
       g.mapping_version, g.digest, g.customer, g.payload,
       e.seq, e.event_id, e.feature, e.quantity::text,
       CASE WHEN e.effect <> e.quantity THEN e.effect::text END, e.kind, e.reverses,
       e.original_event_id, e.occurred_at, e.period_start, e.period_end, e.period_source, e.plan,
       e.plan_version, e.dimensions, e.metadata, e.payload_hash, CASE WHEN e.dedupe_hash <> e.payload_hash THEN e.dedupe_hash END, e.recorded_at
FROM t
LEFT JOIN (
  SELECT m.*, i.tenant_key, i.subject_kind, i.subject_ref, i.exporter, i.destination_account, i.mode,
         i.mapping_version, i.digest, i.customer, i.payload, i.event_seq, i.depends_on
  FROM moved AS m JOIN {schema}.fencepost_outbox_items AS i ON i.item BETWEEN m.item AND m.item) AS g ON true
LEFT JOIN {schema}.fencepost_events AS e ON e.seq BETWEEN g.event_seq AND g.event_seq
