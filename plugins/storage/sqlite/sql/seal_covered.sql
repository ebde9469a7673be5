SELECT generation, before, sealed_at FROM fencepost_bucket_seals
WHERE tenant_key = ?1 AND feature = ?2 AND before >= ?3 ORDER BY before LIMIT 1
