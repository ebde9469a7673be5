SELECT b.bucket_start, b.dimensions, b.generation, b.sum, b.count, b.min, b.max, b.reversed,
       EXISTS (
         SELECT 1 FROM fencepost_bucket_seals AS s
         WHERE s.tenant_key = b.tenant_key AND s.feature = b.feature
           AND s.generation = b.generation - 1 + (
             SELECT min(c.generation) FROM fencepost_bucket_seals AS c
             WHERE c.tenant_key = b.tenant_key AND c.feature = b.feature AND c.before > b.bucket_start)) AS sealed
FROM fencepost_buckets AS b
WHERE b.projection = (SELECT active FROM fencepost_generations WHERE scope = 1)
  AND b.tenant_key = ?1 AND b.feature = ?2 AND b.bucket_start >= ?3 AND b.bucket_start < ?4
  AND (?5 = 0 OR sealed = 0)
ORDER BY b.bucket_start, b.dimensions, b.generation LIMIT ?6 OFFSET ?7
