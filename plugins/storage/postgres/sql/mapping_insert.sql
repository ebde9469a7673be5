INSERT INTO {schema}.fencepost_mappings (version, label, content, created_at)
VALUES ($1, $2, $3, clock_timestamp()) ON CONFLICT (version) DO NOTHING
