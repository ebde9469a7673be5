INSERT INTO {schema}.fencepost_pruned AS p (tenant_key, feature, before)
SELECT n.tenant_key, n.feature, max(n.occurred_at) + interval '1 microsecond'
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS n (tenant_key, feature, occurred_at)
GROUP BY n.tenant_key, n.feature
ORDER BY n.tenant_key, n.feature
ON CONFLICT (tenant_key, feature) DO UPDATE SET before = greatest(p.before, excluded.before)
