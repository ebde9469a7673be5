INSERT INTO fencepost_snapshots (tenant_key, reducer, version) VALUES (?1, ?2, ?3)
ON CONFLICT (tenant_key, reducer) DO UPDATE SET version = max(version + 1, excluded.version)
RETURNING version
