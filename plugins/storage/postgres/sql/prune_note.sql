INSERT INTO {schema}.fencepost_pruned AS p (tenant_key, feature, before, buckets)
SELECT n.tenant_key, n.feature, max(n.occurred_at) + interval '1 microsecond',
  CASE WHEN min(n.buckets) = max(n.buckets) THEN min(n.buckets) ELSE -1 END
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[]) AS n (tenant_key, feature, occurred_at, buckets)
GROUP BY n.tenant_key, n.feature
ORDER BY n.tenant_key, n.feature
ON CONFLICT (tenant_key, feature) DO UPDATE
SET before = greatest(p.before, excluded.before),
  buckets = CASE WHEN p.buckets = excluded.buckets THEN p.buckets ELSE -1 END
