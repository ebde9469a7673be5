CREATE TABLE IF NOT EXISTS {schema}.fencepost_migrations (
  version    integer     PRIMARY KEY,
  name       text        NOT NULL,
  checksum   text        NOT NULL,
  applied_at timestamptz NOT NULL
)
