INSERT INTO fencepost_outbox_items (
  item, tenant_key, subject_kind, subject_ref, exporter, destination_account, mode,
  mapping_version, digest, route, event_seq, feature, customer, payload, created_at, depends_on, usage_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
  coalesce(?17, (SELECT occurred_at FROM fencepost_events WHERE seq = ?11)))
ON CONFLICT (digest) DO NOTHING
