SELECT tenant_key, feature, durable_from FROM fencepost_cutovers
WHERE (tenant_key, feature) > (?1, ?2) ORDER BY tenant_key, feature LIMIT ?3
