WITH
item AS (
  SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::bytea[], $11::bytea[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::text[], $17::boolean[],
    $18::int[], $19::bigint[], $20::boolean[], $21::timestamptz[], $22::bigint[])
  WITH ORDINALITY AS i (
    seq, feature, tenant_key, subject_kind, subject_ref, exporter, destination_account, mode, mapping_version,
    digest, subject_key, route, serial_key, customer, payload, quarantine_reason, settled,
    attempt_budget, depends_on, waits, usage_at, given, ord)
),
offered AS MATERIALIZED (
  SELECT CASE o.given WHEN 0 THEN nextval('{schema}.fencepost_item_seq') ELSE o.given END AS item, o.*
  FROM (
    SELECT i.*, k.route AS known_route, c.now
    FROM item AS i CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS c
    LEFT JOIN {schema}.fencepost_routes AS k ON k.route = i.route
    LEFT JOIN LATERAL (
      SELECT true AS taken FROM {schema}.fencepost_outbox_items AS x WHERE x.digest = i.digest OFFSET 0) AS x ON true
    WHERE x.taken IS NULL
    ORDER BY i.seq, i.digest) AS o
),
staged AS (
  INSERT INTO {schema}.fencepost_outbox_items
    (item, tenant_key, subject_kind, subject_ref, exporter, destination_account, mode, mapping_version,
     digest, subject_key, route, event_seq, feature, customer, payload, created_at,
     depends_on, usage_at)
  SELECT item, tenant_key, subject_kind, subject_ref, exporter, destination_account, mode,
    mapping_version, digest, subject_key, route, nullif(seq, 0), feature, customer, nullif(payload, ''), now,
    nullif(depends_on, 0), usage_at
  FROM offered ORDER BY item
  ON CONFLICT (subject_key) WHERE NOT superseded DO NOTHING
  RETURNING item
),
-- A route that is not stored is NULL here, and refused.
state AS (
  INSERT INTO {schema}.fencepost_outbox_state
    (item, route, serial_key, state, attempt_budget, next_attempt_at, quarantine_reason, settled_at, waits_for)
  SELECT o.item, o.known_route, o.serial_key,
    CASE o.quarantine_reason WHEN '' THEN 'pending' ELSE 'quarantined' END,
    o.attempt_budget, CASE o.quarantine_reason WHEN '' THEN o.now END, nullif(o.quarantine_reason, ''),
    CASE WHEN o.settled THEN o.now END, CASE WHEN o.waits THEN o.depends_on END
  FROM offered AS o JOIN staged USING (item) ORDER BY o.item
  RETURNING item, route, state, settled_at
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT route, state, count(*), count(*) FILTER (WHERE settled_at IS NULL)
  FROM state GROUP BY route, state
)
-- Those whose identity exists are not among the answers.
SELECT o.ord, s.item FROM offered AS o LEFT JOIN state AS s ON s.item = o.item
