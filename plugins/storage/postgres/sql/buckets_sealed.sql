SELECT before, generation, sealed_at
FROM {schema}.fencepost_bucket_seals
WHERE tenant_key = $1 AND feature = $2 AND before >= $3
ORDER BY generation
LIMIT 1
