SELECT k.tenant_key, k.feature, k.period_start,
       x.period_end, coalesce(x.quantity, '0'), coalesce(x.events, 0), coalesce(x.count, 0), coalesce(x.signed, 0),
       y.period_end, coalesce(y.quantity, '0'), coalesce(y.events, 0), coalesce(y.count, 0), coalesce(y.signed, 0)
FROM (SELECT tenant_key, feature, period_start FROM fencepost_totals WHERE generation = ?1
      UNION
      SELECT tenant_key, feature, period_start FROM fencepost_totals WHERE generation = ?2
      ORDER BY tenant_key, feature, period_start) AS k
LEFT JOIN fencepost_totals AS x ON x.generation = ?1 AND x.tenant_key = k.tenant_key
  AND x.feature = k.feature AND x.period_start = k.period_start
LEFT JOIN fencepost_totals AS y ON y.generation = ?2 AND y.tenant_key = k.tenant_key
  AND y.feature = k.feature AND y.period_start = k.period_start
WHERE coalesce(x.quantity, '0') <> coalesce(y.quantity, '0')
   OR coalesce(x.events, 0) <> coalesce(y.events, 0) OR coalesce(x.count, 0) <> coalesce(y.count, 0)
ORDER BY k.tenant_key, k.feature, k.period_start
