INSERT INTO fencepost_events (
  seq, tenant_key, event_id, feature, quantity, kind, original_event_id, occurred_at,
  period_start, period_end, period_source, plan, plan_version, dimensions,
  metadata, payload_hash, dedupe_hash, recorded_at, receipt_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
ON CONFLICT (tenant_key, event_id) DO NOTHING
