-- What retention removed while the feature had no buckets, or other ones.
SELECT max(before)
FROM {schema}.fencepost_pruned AS p
WHERE tenant_key = $1 AND feature = $2 AND before > $3::timestamptz
  AND buckets IS DISTINCT FROM (SELECT f.revision FROM {schema}.fencepost_features AS f WHERE f.feature = p.feature)
