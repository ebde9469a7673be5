SELECT k.tenant_key, k.feature, c.durable_from
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (tenant_key, feature, n)
JOIN {schema}.fencepost_cutovers AS c ON c.tenant_key = k.tenant_key AND c.feature = k.feature
ORDER BY k.n
