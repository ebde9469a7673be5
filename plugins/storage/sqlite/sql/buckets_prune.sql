DELETE FROM fencepost_buckets
WHERE (projection, tenant_key, feature, bucket_start, dimensions, generation) IN (
  SELECT projection, tenant_key, feature, bucket_start, dimensions, generation FROM fencepost_buckets
  WHERE projection = ?1 ORDER BY tenant_key, feature, bucket_start, dimensions, generation LIMIT ?2)
