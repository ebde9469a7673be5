INSERT INTO fencepost_mappings (version, label, content, created_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (version) DO NOTHING
