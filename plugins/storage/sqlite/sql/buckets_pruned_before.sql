SELECT max(min(latest + 1, ?4)) FROM fencepost_pruned
WHERE tenant_key = ?1 AND feature = ?2 AND latest >= ?3 AND earliest < ?4
  AND buckets IS NOT (SELECT revision FROM fencepost_features WHERE feature = ?2)
