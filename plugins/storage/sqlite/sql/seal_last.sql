SELECT generation, before, sealed_at FROM fencepost_bucket_seals
WHERE tenant_key = ?1 AND feature = ?2 ORDER BY generation DESC LIMIT 1
