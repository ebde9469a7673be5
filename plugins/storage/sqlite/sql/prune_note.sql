INSERT INTO fencepost_pruned AS p (tenant_key, feature, period_start, earliest, latest, buckets)
VALUES (?1, ?2, ?3, ?4, ?4, ?5)
ON CONFLICT (tenant_key, feature, period_start) DO UPDATE
SET earliest = min(p.earliest, excluded.earliest), latest = max(p.latest, excluded.latest),
  buckets = iif(p.buckets = excluded.buckets, p.buckets, -1)
