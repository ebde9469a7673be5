INSERT INTO fencepost_routes (
  exporter, destination_account, mode, feature, disposition, mapping_version, applies_after, created_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'fencepost_events'), 0), ?7
