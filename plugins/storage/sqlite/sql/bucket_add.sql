INSERT INTO fencepost_buckets AS b (
  projection, tenant_key, feature, bucket_start, dimensions, generation, sum, count, min, max, reversed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (projection, tenant_key, feature, bucket_start, dimensions, generation) DO UPDATE
SET sum = dec_add(b.sum, excluded.sum), count = b.count + excluded.count,
    min = dec_min(b.min, excluded.min), max = dec_max(b.max, excluded.max),
    reversed = max(b.reversed, excluded.reversed)
