SELECT version, name, checksum, applied_at FROM fencepost_migrations ORDER BY version
