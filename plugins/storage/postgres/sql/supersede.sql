-- The row is locked; what is settled stays settled since then.
WITH o AS MATERIALIZED (
  SELECT item, settled_at IS NULL AS was_open FROM {schema}.fencepost_outbox_state
  WHERE item = $1::bigint AND superseded_by IS NULL
),
moved AS (
  UPDATE {schema}.fencepost_outbox_state AS u SET
    superseded_by = $2::bigint, settled_at = coalesce(u.settled_at, clock_timestamp())
  FROM o WHERE u.item = o.item
  RETURNING u.item, u.route, u.state, o.was_open
),
counted AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT route, state, 0, -1 FROM moved WHERE was_open
)
UPDATE {schema}.fencepost_outbox_items AS i SET superseded = true
FROM moved WHERE i.item = moved.item
RETURNING i.tenant_key, i.subject_kind, i.subject_ref, i.exporter, i.destination_account, i.mode, i.mapping_version,
          coalesce(i.event_seq, 0), i.feature
