-- Nobody records meanwhile: the last seq drawn is the last one used, whatever
-- retention has removed since.
INSERT INTO {schema}.fencepost_routes
  (exporter, destination_account, mode, feature, disposition, mapping_version, applies_after, created_at)
SELECT $1, $2, $3, $4, $5, $6,
  (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.fencepost_event_seq), clock_timestamp()
ON CONFLICT (exporter, destination_account, mode, feature) WHERE retired_at IS NULL DO NOTHING
