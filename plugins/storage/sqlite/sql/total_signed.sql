SELECT signed FROM fencepost_totals
WHERE generation = (SELECT active FROM fencepost_generations WHERE scope = 1)
  AND tenant_key = ?1 AND feature = ?2 AND period_start = ?3
