-- What is left of the original of a stored correction; nothing where retention
-- removed either.
SELECT (abs(o.quantity) - (
  SELECT sum(x.quantity) FROM {schema}.fencepost_events AS x
  WHERE x.tenant_key = o.tenant_key AND x.original_event_id = o.event_id))::text
FROM {schema}.fencepost_events AS c
JOIN {schema}.fencepost_events AS o ON o.tenant_key = c.tenant_key AND o.event_id = c.original_event_id
WHERE c.seq = $1::bigint
