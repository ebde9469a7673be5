SELECT tenant_key, feature, period_start, period_end, value::text
FROM {schema}.fencepost_counters
WHERE (tenant_key, feature, period_start) > ($1, $2, $3)
  AND ($4 = '' OR tenant_key = $4)
  AND ($5 = '' OR feature = $5)
ORDER BY tenant_key, feature, period_start
LIMIT $6
