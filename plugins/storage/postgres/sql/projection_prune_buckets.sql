DELETE FROM {schema}.fencepost_buckets
WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM {schema}.fencepost_buckets WHERE projection = $1 LIMIT $2))
