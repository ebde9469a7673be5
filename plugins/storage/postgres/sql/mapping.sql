SELECT version, label, content FROM {schema}.fencepost_mappings WHERE version = $1
