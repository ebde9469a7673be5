DELETE FROM {schema}.fencepost_receipts AS r USING unnest($1::text[]) AS g (batch_id) WHERE r.batch_id = g.batch_id
