INSERT INTO fencepost_history (tenant_key, feature, start, value) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (tenant_key, feature, start) DO UPDATE SET value = excluded.value
