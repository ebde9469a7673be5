-- Nobody records meanwhile: the last seq drawn is the last one used, whatever
-- retention has removed since.
INSERT INTO {schema}.fencepost_bucket_seals (tenant_key, feature, generation, before, seq, sealed_at)
SELECT $1, $2, coalesce(max(generation), 0) + 1, $3::timestamptz,
  (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.fencepost_event_seq), clock_timestamp()
FROM {schema}.fencepost_bucket_seals
WHERE tenant_key = $1 AND feature = $2
HAVING coalesce(max(before) < $3::timestamptz, true)
RETURNING before, generation, sealed_at
