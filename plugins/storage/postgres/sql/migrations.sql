SELECT version, name, checksum, applied_at FROM {schema}.fencepost_migrations ORDER BY version
