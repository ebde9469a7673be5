DELETE FROM fencepost_totals
WHERE (generation, tenant_key, feature, period_start) IN (
  SELECT generation, tenant_key, feature, period_start FROM fencepost_totals
  WHERE generation = ?1 ORDER BY tenant_key, feature, period_start LIMIT ?2)
