WITH gone AS (
  DELETE FROM {schema}.fencepost_tombstones AS t
  USING unnest($1::text[], $2::text[]) AS g (tenant_key, event_id)
  WHERE t.tenant_key = g.tenant_key AND t.event_id = g.event_id
  RETURNING t.tenant_key, t.receipt_id
)
DELETE FROM {schema}.fencepost_cloudevents AS c
USING (SELECT DISTINCT tenant_key, receipt_id FROM gone WHERE receipt_id IS NOT NULL) AS g
WHERE c.tenant_key = g.tenant_key AND c.receipt_id = g.receipt_id
