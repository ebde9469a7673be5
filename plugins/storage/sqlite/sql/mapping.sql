SELECT version, label, content FROM fencepost_mappings WHERE version = ?1
