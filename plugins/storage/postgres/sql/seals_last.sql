SELECT t.tenant_key, s.generation, s.before, s.sealed_at
FROM unnest($2::text[]) AS t (tenant_key)
CROSS JOIN LATERAL (
  SELECT generation, before, sealed_at FROM {schema}.fencepost_bucket_seals
  WHERE tenant_key = t.tenant_key AND feature = $1
  ORDER BY generation DESC LIMIT 1) AS s
