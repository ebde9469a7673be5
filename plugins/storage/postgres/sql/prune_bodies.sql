-- A receipt of which no event is left keeps what decides about a repeat, and
-- loses what its sender wrote. Events recorded from $1 to $2 were removed.
UPDATE {schema}.fencepost_cloudevents AS c SET body = NULL
WHERE c.recorded_at >= $1::timestamptz AND c.recorded_at <= $2::timestamptz
  AND c.body IS NOT NULL AND c.event_ids <> '{}'
  AND NOT EXISTS (
    SELECT FROM unnest(c.event_ids) AS u (event_id)
    JOIN {schema}.fencepost_events AS e ON e.tenant_key = c.tenant_key AND e.event_id = u.event_id)
