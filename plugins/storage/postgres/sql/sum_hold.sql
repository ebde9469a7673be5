-- The items of one sum, in their order, as they stay until the commit. None
-- without a time of acceptance may be confirmed.
WITH destination AS MATERIALIZED (
  SELECT array_agg(route) AS routes FROM {schema}.fencepost_routes
  WHERE exporter = $1::text AND destination_account = $2::text AND mode = $3::text
),
item AS (
  SELECT i.item
  FROM {schema}.fencepost_events AS e
  JOIN {schema}.fencepost_outbox_items AS i ON i.event_seq = e.seq
  WHERE e.occurred_at >= $4::timestamptz AND e.occurred_at < $5::timestamptz
    AND i.route = ANY ((SELECT routes FROM destination)::bigint[])
    AND i.customer = $6::text AND i.feature = $7::text AND i.mapping_version = $8::text
  UNION ALL
  SELECT i.item
  FROM {schema}.fencepost_outbox_items AS i
  WHERE i.usage_at >= $4::timestamptz AND i.usage_at < $5::timestamptz
    AND i.route = ANY ((SELECT routes FROM destination)::bigint[])
    AND i.customer = $6::text AND i.feature = $7::text AND i.mapping_version = $8::text
)
SELECT s.item, s.state, s.accepted_at IS NULL
FROM item AS i JOIN {schema}.fencepost_outbox_state AS s ON s.item = i.item
WHERE s.superseded_by IS NULL
ORDER BY s.item
FOR NO KEY UPDATE OF s
