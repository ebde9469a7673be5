DELETE FROM {schema}.fencepost_cloudevents AS c
USING unnest($1::text[], $2::text[]) AS g (tenant_key, receipt_id)
WHERE c.tenant_key = g.tenant_key AND c.receipt_id = g.receipt_id
