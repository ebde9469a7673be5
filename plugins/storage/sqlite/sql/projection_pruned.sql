INSERT INTO fencepost_buckets (
  projection, tenant_key, feature, bucket_start, dimensions, generation, sum, count, min, max, reversed)
SELECT ?2, tenant_key, feature, bucket_start, dimensions, generation, sum, count, min, max, reversed
FROM fencepost_buckets WHERE projection = ?1
