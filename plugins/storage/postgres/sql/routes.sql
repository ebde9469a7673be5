SELECT route, exporter, destination_account, mode, feature, disposition, mapping_version, applies_after, retired_at
FROM {schema}.fencepost_routes ORDER BY route
