SELECT version, label, content FROM fencepost_mappings ORDER BY created_at, version
