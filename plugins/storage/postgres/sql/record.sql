-- Lines between "--+ name" and "--- name" are there only if a request has what
-- the name says, and those after "--+ !name" only if it has not: to start a plan
-- costs more than to run it for one event. See record_text.go.
WITH
input AS (
  SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::bytea[], $15::boolean[]
    --+ receipts
    , $16::int[]
    --- receipts
    --+ buckets
    , $17::timestamptz[], $18::text[]
    --- buckets
  ) WITH ORDINALITY AS i (
    tenant_key, event_id, feature, quantity, occurred_at, period_start, period_end,
    period_source, plan, plan_version, dimensions, metadata, payload_hash, dedupe_hash, signed,
    --+ receipts
    receipt,
    --- receipts
    --+ buckets
    bucket_start, bucket_dimensions,
    --- buckets
    ord)
),
--+ receipts
receipt AS MATERIALIZED (
  SELECT * FROM unnest(
    $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::timestamptz[], $25::bytea[],
    $26::text[], $27::text[], $28::text[])
  WITH ORDINALITY AS r (
    tenant_key, receipt_id, source, id, type, occurred_at, dedupe_hash, features, event_ids, body, ord)
),
--- receipts
--+ items
item AS (
  SELECT * FROM unnest(
    $29::int[], $30::text[], $31::text[], $32::text[], $33::text[], $34::text[], $35::text[], $36::text[],
    $37::bytea[], $38::bytea[], $39::bigint[], $40::text[], $41::text[], $42::text[], $43::text[], $44::boolean[],
    $45::int[])
  AS i (
    ord, tenant_key, subject_kind, subject_ref, exporter, destination_account, mode, mapping_version,
    digest, subject_key, route, serial_key, customer, payload, quarantine_reason, settled,
    attempt_budget)
),
--- items
-- What the caller assumed. With anything moved nothing below has input.
assumed AS MATERIALIZED (
  SELECT (SELECT value FROM {schema}.fencepost_meta WHERE key = 'routes_revision') <> $46::bigint AS routes,
    --+ !subscriptions
    '{}'::text[] AS tenants
    --- !subscriptions
    --+ subscriptions
    ARRAY (
      SELECT a.tenant_key
      FROM unnest($47::text[], $48::bigint[]) AS a (tenant_key, revision)
      LEFT JOIN {schema}.fencepost_subscriptions AS s ON s.tenant_key = a.tenant_key
      WHERE coalesce(s.revision, 0) <> a.revision
      ORDER BY a.tenant_key) AS tenants
    --- subscriptions
),
clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now FROM assumed WHERE NOT routes AND tenants = '{}'
),
--+ receipts
received AS (
  INSERT INTO {schema}.fencepost_cloudevents
    (tenant_key, receipt_id, source, id, type, occurred_at, dedupe_hash, features, event_ids, body, recorded_at)
  SELECT r.tenant_key, r.receipt_id, r.source, r.id, r.type, r.occurred_at, r.dedupe_hash,
    ARRAY (SELECT jsonb_array_elements_text(r.features::jsonb)),
    ARRAY (SELECT jsonb_array_elements_text(r.event_ids::jsonb)), nullif(r.body, ''), c.now
  FROM receipt AS r CROSS JOIN clock AS c
  ORDER BY r.tenant_key, r.receipt_id
  ON CONFLICT (tenant_key, receipt_id) DO NOTHING
  RETURNING tenant_key, receipt_id
),
--- receipts
-- Events whose receipt is here already are settled by that receipt. The count
-- makes every receipt go in before any event, in every session.
wanted AS MATERIALIZED (
  SELECT i.*, (SELECT now FROM clock) AS now, t.seq AS removed_seq, t.feature AS removed_feature,
    t.dedupe_hash AS removed_hash
  FROM input AS i
  LEFT JOIN LATERAL (
    SELECT seq, feature, dedupe_hash FROM {schema}.fencepost_tombstones AS t
    WHERE (SELECT EXISTS (SELECT FROM {schema}.fencepost_tombstones))
      AND t.tenant_key = i.tenant_key AND t.event_id = i.event_id OFFSET 0) AS t ON true
  WHERE (SELECT true FROM clock)
  --+ receipts
  AND (SELECT count(*) FROM received) >= 0 AND (i.receipt = 0 OR EXISTS (
    SELECT FROM receipt AS r JOIN received AS d USING (tenant_key, receipt_id) WHERE r.ord = i.receipt))
  --- receipts
),
inserted AS (
  INSERT INTO {schema}.fencepost_events
    (tenant_key, event_id, feature, quantity, effect, kind, occurred_at, period_start, period_end,
     period_source, plan, plan_version, dimensions, metadata, payload_hash, dedupe_hash, recorded_at)
  SELECT w.tenant_key, w.event_id, w.feature, w.quantity::numeric, w.quantity::numeric, 'usage', w.occurred_at,
    w.period_start, w.period_end, w.period_source, nullif(w.plan, ''), nullif(w.plan_version, ''),
    nullif(w.dimensions, '')::jsonb, nullif(w.metadata, ''), w.payload_hash, w.dedupe_hash, w.now
  FROM wanted AS w
  WHERE w.removed_seq IS NULL
  ORDER BY w.tenant_key, w.event_id
  ON CONFLICT (tenant_key, event_id) DO NOTHING
  RETURNING seq, tenant_key, event_id
),
fresh AS MATERIALIZED (
  SELECT n.seq, w.ord, w.tenant_key, w.feature, w.quantity::numeric AS quantity, w.period_start, w.period_end,
    w.signed, w.now
    --+ buckets
    , w.bucket_start, w.bucket_dimensions
    --- buckets
  FROM inserted AS n JOIN wanted AS w USING (tenant_key, event_id)
),
-- Skipped: here already, removed by retention, or (same is NULL) inserted by a
-- transaction that committed after this statement began.
skipped AS MATERIALIZED (
  SELECT w.ord,
    --+ receipts
    w.receipt,
    --- receipts
    coalesce(e.seq, w.removed_seq) AS seq,
    coalesce(e.feature, w.removed_feature) AS feature,
    coalesce(e.dedupe_hash, w.removed_hash) = w.dedupe_hash AS same
  FROM (SELECT * FROM wanted AS w WHERE w.ord NOT IN (SELECT ord FROM fresh)) AS w
  LEFT JOIN LATERAL (
    SELECT seq, feature, dedupe_hash FROM {schema}.fencepost_events AS e
    WHERE e.tenant_key = w.tenant_key AND e.event_id = w.event_id OFFSET 0) AS e ON true
),
--+ receipts
repeated AS MATERIALIZED (
  SELECT r.ord, c.event_ids, c.features, r.tenant_key, c.dedupe_hash = r.dedupe_hash AS same
  FROM clock, receipt AS r
  LEFT JOIN LATERAL (
    SELECT event_ids, features, dedupe_hash FROM {schema}.fencepost_cloudevents AS c
    WHERE c.tenant_key = r.tenant_key AND c.receipt_id = r.receipt_id OFFSET 0) AS c ON true
  WHERE (r.tenant_key, r.receipt_id) NOT IN (SELECT tenant_key, receipt_id FROM received)
),
--- receipts
generation AS MATERIALIZED (
  SELECT v.generation
  FROM {schema}.fencepost_generations AS g CROSS JOIN LATERAL (VALUES (g.active), (g.building)) AS v (generation)
  WHERE v.generation IS NOT NULL AND $51::boolean -- false: the caller moves totals and buckets
),
total AS (
  INSERT INTO {schema}.fencepost_totals AS t
    (tenant_key, feature, period_start, generation, period_end, quantity, events, count, signed)
  SELECT f.tenant_key, f.feature, f.period_start, g.generation, max(f.period_end), sum(f.quantity),
    count(*), count(*), bool_or(f.signed)
  FROM fresh AS f CROSS JOIN generation AS g
  GROUP BY f.tenant_key, f.feature, f.period_start, g.generation
  ORDER BY f.tenant_key, f.feature, f.period_start, g.generation
  ON CONFLICT (tenant_key, feature, period_start, generation) DO UPDATE SET
    quantity = t.quantity + excluded.quantity, events = t.events + excluded.events,
    count = t.count + excluded.count, signed = t.signed OR excluded.signed
  RETURNING 1
),
--+ buckets
-- Totals before buckets, in every transaction that writes both: the count waits
-- for the totals.
bucket AS (
  INSERT INTO {schema}.fencepost_buckets AS t
    (tenant_key, feature, bucket_start, dimensions, generation, projection, sum, count, min, max, reversed)
  SELECT b.tenant_key, b.feature, b.bucket_start, b.dimensions, 1 + coalesce((
      SELECT max(s.generation) FROM {schema}.fencepost_bucket_seals AS s
      WHERE s.tenant_key = b.tenant_key AND s.feature = b.feature), 0) - coalesce((
      SELECT s.generation FROM {schema}.fencepost_bucket_seals AS s
      WHERE s.tenant_key = b.tenant_key AND s.feature = b.feature AND s.before <= b.bucket_start
      ORDER BY s.before DESC LIMIT 1), 0),
    g.generation, b.sum, b.count, b.min, b.max, false
  FROM (
    SELECT tenant_key, feature, bucket_start, bucket_dimensions AS dimensions, sum(quantity) AS sum,
      count(*) AS count, min(quantity) AS min, max(quantity) AS max
    FROM fresh WHERE bucket_start IS NOT NULL AND (SELECT count(*) FROM total) >= 0
    GROUP BY tenant_key, feature, bucket_start, bucket_dimensions) AS b
  CROSS JOIN generation AS g
  ORDER BY b.tenant_key, b.feature, b.bucket_start, b.dimensions, g.generation
  ON CONFLICT (tenant_key, feature, bucket_start, dimensions, generation, projection) DO UPDATE SET
    sum = t.sum + excluded.sum, count = t.count + excluded.count,
    min = least(t.min, excluded.min), max = greatest(t.max, excluded.max)
),
--- buckets
--+ items
known AS MATERIALIZED (
  SELECT ARRAY (SELECT route FROM {schema}.fencepost_routes WHERE route = ANY ($39::bigint[])) AS routes
),
offered AS MATERIALIZED (
  SELECT nextval('{schema}.fencepost_item_seq') AS item, o.*
  FROM (
    SELECT i.*, f.seq, f.feature, f.now
    FROM item AS i JOIN fresh AS f USING (ord)
    --+ lookup
    LEFT JOIN LATERAL (
      SELECT true AS taken FROM {schema}.fencepost_outbox_items AS x WHERE x.digest = i.digest OFFSET 0) AS x ON true
    WHERE x.taken IS NULL
    --- lookup
    ORDER BY f.seq, i.digest) AS o
),
-- An item of an event that is new is new itself, but for what retention left: an
-- index says so, and then the statement is sent again with what looks.
staged AS (
  INSERT INTO {schema}.fencepost_outbox_items
    (item, tenant_key, subject_kind, subject_ref, exporter, destination_account, mode, mapping_version,
     digest, subject_key, route, event_seq, feature, customer, payload, created_at)
  SELECT o.item, o.tenant_key, o.subject_kind, o.subject_ref, o.exporter, o.destination_account, o.mode,
    o.mapping_version, o.digest, o.subject_key, o.route, o.seq, o.feature, o.customer, nullif(o.payload, ''), o.now
  FROM offered AS o
  --+ lookup
  ORDER BY o.item
  ON CONFLICT (subject_key) WHERE NOT superseded DO NOTHING
  RETURNING item
  --- lookup
),
-- A route that is not stored is NULL here, and refused.
state AS (
  INSERT INTO {schema}.fencepost_outbox_state
    (item, route, serial_key, state, attempt_budget, next_attempt_at, quarantine_reason, settled_at)
  SELECT item, CASE WHEN route = ANY ((SELECT routes FROM known)::bigint[]) THEN route END, serial_key, CASE quarantine_reason WHEN '' THEN 'pending' ELSE 'quarantined' END,
    attempt_budget, CASE quarantine_reason WHEN '' THEN now END, nullif(quarantine_reason, ''),
    CASE WHEN settled THEN now END
  FROM offered
  --+ lookup
  JOIN staged USING (item) ORDER BY item
  RETURNING item, route, state, settled_at
  --- lookup
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  --+ lookup
  SELECT route, state, count(*), count(*) FILTER (WHERE settled_at IS NULL)
  FROM state GROUP BY route, state
  --- lookup
  --+ !lookup
  SELECT route, CASE WHEN good THEN 'pending' ELSE 'quarantined' END, count(*), count(*) FILTER (WHERE NOT settled)
  FROM (SELECT route, quarantine_reason = '' AS good, settled FROM offered) AS o GROUP BY route, good
  --- !lookup
),
--- items
result AS (
  SELECT array_agg(ord) AS ords, array_agg(seq) AS seqs FROM (SELECT ord, seq FROM fresh ORDER BY ord) AS f
)
SELECT a.routes, a.tenants, n.ords, n.seqs, s.ords, s.seqs, s.features, s.sames,
  --+ receipts
  (SELECT array_agg(ord ORDER BY ord) FROM repeated),
  (SELECT array_agg(same ORDER BY ord) FROM repeated),
  x.ords, x.event_ids, x.features, x.seqs,
  --- receipts
  --+ !receipts
  NULL::bigint[], NULL::boolean[], NULL::bigint[], NULL::text[], NULL::text[], NULL::bigint[],
  --- !receipts
  --+ items
  --+ lookup
  (SELECT count(*) FROM (SELECT digest FROM offered WHERE item NOT IN (SELECT item FROM staged)) AS o
   LEFT JOIN LATERAL (
     SELECT true AS taken FROM {schema}.fencepost_outbox_items AS x WHERE x.digest = o.digest OFFSET 0) AS x ON true
   WHERE x.taken IS NULL),
  --- lookup
  --+ !lookup
  0::bigint,
  --- !lookup
  --- items
  --+ !items
  0::bigint,
  --- !items
  -- The guard of the one round trip: nothing may commit where a conflict undoes
  -- more than its own row, or where it is not known whether there is one.
  1 / CASE WHEN $49::boolean AND (
    --+ receipts
    EXISTS (SELECT FROM skipped WHERE ($50::boolean OR receipt > 0) AND same IS NOT TRUE) OR
    EXISTS (SELECT FROM repeated WHERE same IS NULL OR $50::boolean AND NOT same)
    --- receipts
    --+ !receipts
    $50::boolean AND EXISTS (SELECT FROM skipped WHERE same IS NOT TRUE)
    --- !receipts
    ) THEN 0 ELSE 1 END
FROM assumed AS a CROSS JOIN result AS n CROSS JOIN (
  SELECT array_agg(ord) AS ords, array_agg(seq) AS seqs, array_agg(feature) AS features, array_agg(same) AS sames
  FROM (SELECT ord, seq, feature, same FROM skipped ORDER BY ord) AS s) AS s
--+ receipts
CROSS JOIN (
  SELECT array_agg(p.ord ORDER BY p.ord, p.n) AS ords, array_agg(p.event_id ORDER BY p.ord, p.n) AS event_ids,
    array_agg(p.feature ORDER BY p.ord, p.n) AS features, array_agg(p.seq ORDER BY p.ord, p.n) AS seqs
  FROM (
    SELECT r.ord, u.n, u.event_id, u.feature, coalesce(e.seq, t.seq) AS seq
    FROM repeated AS r
    CROSS JOIN LATERAL unnest(r.event_ids, r.features) WITH ORDINALITY AS u (event_id, feature, n)
    LEFT JOIN LATERAL (
      SELECT seq FROM {schema}.fencepost_events AS e
      WHERE e.tenant_key = r.tenant_key AND e.event_id = u.event_id OFFSET 0) AS e ON true
    LEFT JOIN LATERAL (
      SELECT seq FROM {schema}.fencepost_tombstones AS t
      WHERE t.tenant_key = r.tenant_key AND t.event_id = u.event_id OFFSET 0) AS t ON true
    WHERE r.same) AS p) AS x
--- receipts
