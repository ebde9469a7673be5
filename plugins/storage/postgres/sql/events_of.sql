-- The events of items, in the order of the items; none where it is not stored.
SELECT e.seq, e.feature
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (tenant_key, event_id, n)
LEFT JOIN LATERAL (
  SELECT seq, feature FROM {schema}.fencepost_events AS e
  WHERE e.tenant_key = k.tenant_key AND e.event_id = k.event_id OFFSET 0) AS e ON true
ORDER BY k.n
