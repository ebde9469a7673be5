INSERT INTO fencepost_history AS h (tenant_key, feature, start, value) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (tenant_key, feature, start) DO UPDATE SET value = dec_add(h.value, excluded.value)
