INSERT INTO {schema}.fencepost_migrations (version, name, checksum, applied_at)
VALUES ($1, $2, $3, clock_timestamp()) RETURNING applied_at
