INSERT INTO fencepost_cutovers (tenant_key, feature, durable_from) VALUES (?1, ?2, ?3)
ON CONFLICT (tenant_key, feature) DO NOTHING
