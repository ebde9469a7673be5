INSERT INTO {schema}.fencepost_routes
  (exporter, destination_account, mode, feature, disposition, mapping_version, applies_after, created_at)
SELECT $1, $2, $3, $4, $5, $6, coalesce((SELECT max(seq) FROM {schema}.fencepost_events), 0), clock_timestamp()
ON CONFLICT (exporter, destination_account, mode, feature) WHERE retired_at IS NULL DO NOTHING
