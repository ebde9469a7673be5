INSERT INTO fencepost_cloudevents (
  tenant_key, receipt_id, source, id, type, occurred_at, dedupe_hash, features, seqs, body, recorded_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (tenant_key, receipt_id) DO NOTHING
