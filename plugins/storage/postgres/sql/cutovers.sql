SELECT tenant_key, feature, durable_from FROM {schema}.fencepost_cutovers
WHERE (tenant_key, feature) > ($1::text, $2::text)
ORDER BY tenant_key, feature LIMIT $3::integer
