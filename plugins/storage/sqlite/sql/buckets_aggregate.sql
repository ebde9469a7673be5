SELECT b.bucket_start, b.dimensions, b.sum, b.count, b.min, b.max, b.reversed
FROM fencepost_buckets AS b
WHERE b.projection = (SELECT active FROM fencepost_generations WHERE scope = 1)
  AND b.tenant_key = ?1 AND b.feature = ?2 AND b.bucket_start >= ?3 AND b.bucket_start < ?4
