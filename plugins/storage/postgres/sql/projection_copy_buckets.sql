INSERT INTO {schema}.fencepost_buckets
  (tenant_key, feature, bucket_start, dimensions, generation, projection, sum, count, min, max, reversed)
SELECT tenant_key, feature, bucket_start, dimensions, generation, $1::bigint, sum, count, min, max, reversed
FROM {schema}.fencepost_buckets
WHERE projection = 0
ORDER BY tenant_key, feature, bucket_start, dimensions, generation
