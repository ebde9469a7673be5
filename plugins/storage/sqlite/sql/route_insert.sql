INSERT INTO fencepost_routes (
  exporter, destination_account, mode, feature, disposition, mapping_version, applies_after, created_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, (SELECT value FROM fencepost_meta WHERE key = 'last_event'), ?7
