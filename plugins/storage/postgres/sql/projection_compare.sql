WITH d AS (
  SELECT coalesce(a.tenant_key, b.tenant_key) AS tenant_key, coalesce(a.feature, b.feature) AS feature,
    coalesce(a.period_start, b.period_start) AS period_start,
    a.period_end AS a_end, coalesce(a.quantity, 0) AS a_quantity, coalesce(a.events, 0) AS a_events,
    coalesce(a.count, 0) AS a_count, coalesce(a.signed, false) AS a_signed,
    b.period_end AS b_end, coalesce(b.quantity, 0) AS b_quantity, coalesce(b.events, 0) AS b_events,
    coalesce(b.count, 0) AS b_count, coalesce(b.signed, false) AS b_signed
  FROM (SELECT * FROM {schema}.fencepost_totals WHERE generation = $1) AS a
  FULL JOIN (SELECT * FROM {schema}.fencepost_totals WHERE generation = $2) AS b
    ON a.tenant_key = b.tenant_key AND a.feature = b.feature AND a.period_start = b.period_start
)
SELECT tenant_key, feature, period_start,
  a_end, a_quantity::text, a_events, a_count, a_signed,
  b_end, b_quantity::text, b_events, b_count, b_signed, count(*) OVER ()
FROM d
WHERE (a_quantity, a_events, a_count) IS DISTINCT FROM (b_quantity, b_events, b_count)
ORDER BY tenant_key, feature, period_start
LIMIT $3
