SELECT version, label, content FROM {schema}.fencepost_mappings ORDER BY version
