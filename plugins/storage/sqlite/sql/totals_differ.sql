SELECT x.tenant_key, x.feature, x.period_start,
       x.period_end, x.quantity, x.events, x.count, x.signed,
       y.period_end, coalesce(y.quantity, '0'), coalesce(y.events, 0), coalesce(y.count, 0), coalesce(y.signed, 0)
FROM fencepost_totals AS x
LEFT JOIN fencepost_totals AS y ON y.generation = ?2 AND y.tenant_key = x.tenant_key
  AND y.feature = x.feature AND y.period_start = x.period_start
WHERE x.generation = ?1 AND (?3 = 0 OR y.generation IS NULL)
  AND (x.quantity <> coalesce(y.quantity, '0')
    OR x.events <> coalesce(y.events, 0) OR x.count <> coalesce(y.count, 0))
ORDER BY x.tenant_key, x.feature, x.period_start
