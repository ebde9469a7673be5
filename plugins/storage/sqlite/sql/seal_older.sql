SELECT generation FROM fencepost_bucket_seals
WHERE tenant_key = ?1 AND feature = ?2 AND seq < ?3 ORDER BY seq DESC, generation DESC LIMIT 1
