SELECT t.tenant_key, t.feature, t.period_start, t.period_end, t.quantity, t.events, t.count
FROM fencepost_totals AS t
WHERE t.tenant_key = ?1 AND t.feature = ?4
  AND (?2 IS NULL OR t.period_start >= ?2) AND (?3 IS NULL OR t.period_start < ?3)
  AND t.generation = (SELECT active FROM fencepost_generations WHERE scope = 1)
ORDER BY t.tenant_key, t.feature, t.period_start
