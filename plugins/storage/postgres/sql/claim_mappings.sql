SELECT version, label, content FROM {schema}.fencepost_mappings WHERE version = ANY ($1::text[])
