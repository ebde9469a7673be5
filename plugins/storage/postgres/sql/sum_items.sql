-- What was told to a destination, by the exporter of the routes: one that was
-- renamed has the items of its old name. Usage of a time is few of all events;
-- a window has no event and its time is its own.
WITH destination AS MATERIALIZED (
  SELECT array_agg(route) AS routes FROM {schema}.fencepost_routes
  WHERE exporter = $1::text AND destination_account = $2::text AND mode = $3::text
),
item AS (
  SELECT i.item, i.customer, i.feature, i.mapping_version, i.depends_on, e.effect AS value
  FROM {schema}.fencepost_events AS e
  JOIN {schema}.fencepost_outbox_items AS i ON i.event_seq = e.seq
  WHERE e.occurred_at >= $4::timestamptz AND e.occurred_at < $5::timestamptz
    AND i.route = ANY ((SELECT routes FROM destination)::bigint[])
  UNION ALL
  SELECT i.item, i.customer, i.feature, i.mapping_version, NULL, (i.payload::json ->> 'value')::numeric
  FROM {schema}.fencepost_outbox_items AS i
  WHERE i.usage_at >= $4::timestamptz AND i.usage_at < $5::timestamptz
    AND i.route = ANY ((SELECT routes FROM destination)::bigint[])
),
known AS (
  SELECT i.customer COLLATE "C" AS customer, i.feature, i.mapping_version, i.value,
         s.state, s.disputed IS NOT NULL AS disputed,
         s.state IN ('accepted', 'confirmed') AND s.disputed IS NULL AS reported,
         s.accepted_at > clock_timestamp() - $13::bigint * interval '1 microsecond' AS fresh,
         s.state IN ('pending', 'leased', 'uncertain') AS open,
         s.state IN ('quarantined', 'rejected') AS held
  FROM item AS i JOIN {schema}.fencepost_outbox_state AS s ON s.item = i.item
  WHERE s.superseded_by IS NULL
    -- What a counter reports is in its windows.
    AND NOT (s.state = 'quarantined' AND (
      s.quarantine_reason IN ('period_buffered', 'feature_buffered')
      OR s.quarantine_reason = 'original_ineligible' AND EXISTS (
        SELECT FROM {schema}.fencepost_outbox_state AS o
        WHERE o.item = i.depends_on AND o.state = 'quarantined' AND o.quarantine_reason IN ('period_buffered', 'feature_buffered'))))
    AND ($6::text IS NULL OR i.customer = $6)
    AND ($7::text IS NULL OR i.feature = $7)
    AND ($8::text IS NULL OR i.mapping_version = $8)
    AND (i.customer COLLATE "C", i.feature, i.mapping_version) > ($9::text, $10::text, $11::text)
)
SELECT customer, feature, mapping_version, sum(value)::text,
       coalesce(sum(value) FILTER (WHERE reported), 0)::text, count(*) FILTER (WHERE reported),
       count(*) FILTER (WHERE reported AND state = 'confirmed'),
       count(*) FILTER (WHERE open), coalesce(sum(value) FILTER (WHERE open), 0)::text,
       count(*) FILTER (WHERE held), coalesce(sum(value) FILTER (WHERE held), 0)::text,
       count(*) FILTER (WHERE disputed), coalesce(sum(value) FILTER (WHERE disputed), 0)::text,
       count(*) FILTER (WHERE reported AND fresh), coalesce(sum(value) FILTER (WHERE reported AND fresh), 0)::text
FROM known
GROUP BY customer, feature, mapping_version
ORDER BY customer, feature, mapping_version
LIMIT $12::integer
