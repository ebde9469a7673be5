-- What of a request is here already: for its events and its receipts, in that
-- order, whether the stored content is the same, and where the event is.
SELECT true AS event, i.ord, coalesce(e.seq, t.seq) AS seq, coalesce(e.feature, t.feature) AS feature,
  coalesce(e.dedupe_hash, t.dedupe_hash) = i.dedupe_hash AS same
FROM unnest($1::text[], $2::text[], $3::bytea[]) WITH ORDINALITY AS i (tenant_key, event_id, dedupe_hash, ord)
LEFT JOIN LATERAL (
  SELECT seq, feature, dedupe_hash FROM {schema}.fencepost_events AS e
  WHERE e.tenant_key = i.tenant_key AND e.event_id = i.event_id OFFSET 0) AS e ON true
LEFT JOIN LATERAL (
  SELECT seq, feature, dedupe_hash FROM {schema}.fencepost_tombstones AS t
  WHERE t.tenant_key = i.tenant_key AND t.event_id = i.event_id OFFSET 0) AS t ON true
WHERE coalesce(e.seq, t.seq) IS NOT NULL
UNION ALL
SELECT false, r.ord, 0, '', c.dedupe_hash = r.dedupe_hash
FROM unnest($4::text[], $5::text[], $6::bytea[]) WITH ORDINALITY AS r (tenant_key, receipt_id, dedupe_hash, ord)
JOIN {schema}.fencepost_cloudevents AS c ON c.tenant_key = r.tenant_key AND c.receipt_id = r.receipt_id
