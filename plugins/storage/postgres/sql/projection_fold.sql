-- What the next events of a scan add to totals. The end of a period is that of
-- the first event of it, as where they are added up one by one.
SELECT e.tenant_key, e.feature, e.period_start, e.period_end, sum(e.effect)::text, count(*),
  count(*) FILTER (WHERE e.kind = 'usage') - count(*) FILTER (WHERE e.kind = 'correction' AND e.reverses),
  e.feature = ANY ($4::text[]), max(e.seq)
FROM (
  SELECT seq, tenant_key, feature, period_start, period_end, effect, kind, reverses
  FROM {schema}.fencepost_events
  WHERE seq > $1 AND seq <= $2
  ORDER BY seq LIMIT $3) AS e
GROUP BY e.tenant_key, e.feature, e.period_start, e.period_end
ORDER BY min(e.seq)
