-- Removes events with their items and the attempts at these. What was theirs and
-- stays: identity and hash, the receipt they came with, and the gauge.
WITH event AS MATERIALIZED (
  SELECT e.seq, e.tenant_key, e.event_id, e.feature, e.dedupe_hash, e.recorded_at
  FROM unnest($1::bigint[]) AS p (seq)
  JOIN {schema}.fencepost_events AS e ON e.seq = ANY (ARRAY[p.seq])
),
receipt AS MATERIALIZED (
  SELECT c.tenant_key, u.event_id, c.receipt_id
  FROM {schema}.fencepost_cloudevents AS c CROSS JOIN LATERAL unnest(c.event_ids) AS u (event_id)
  WHERE c.recorded_at >= (SELECT min(recorded_at) FROM event)
    AND c.recorded_at <= (SELECT max(recorded_at) FROM event)
),
tombstone AS (
  INSERT INTO {schema}.fencepost_tombstones (tenant_key, event_id, seq, feature, dedupe_hash, receipt_id)
  SELECT e.tenant_key, e.event_id, e.seq, e.feature, e.dedupe_hash, r.receipt_id
  FROM event AS e LEFT JOIN receipt AS r ON r.tenant_key = e.tenant_key AND r.event_id = e.event_id
),
item AS MATERIALIZED (
  SELECT i.item FROM event AS e
  JOIN {schema}.fencepost_outbox_items AS i ON i.event_seq = ANY (ARRAY[e.seq])
),
attempt AS (
  DELETE FROM {schema}.fencepost_attempts WHERE item = ANY (ARRAY(SELECT item FROM item))
),
state AS (
  DELETE FROM {schema}.fencepost_outbox_state WHERE item = ANY (ARRAY(SELECT item FROM item))
  RETURNING route, state, settled_at
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT route, state, -count(*), -count(*) FILTER (WHERE settled_at IS NULL) FROM state GROUP BY route, state
),
intent AS (
  DELETE FROM {schema}.fencepost_outbox_items WHERE item = ANY (ARRAY(SELECT item FROM item))
)
DELETE FROM {schema}.fencepost_events WHERE seq = ANY ($1::bigint[])
