-- Corrections of one event go one after the other: B27. The row never changes,
-- so this is all that is ever waited for.
SELECT seq, tenant_key, event_id, feature, quantity::text, effect::text, kind, reverses, original_event_id,
       occurred_at, period_start, period_end, period_source, plan, plan_version, dimensions, metadata,
       payload_hash, dedupe_hash, recorded_at
FROM {schema}.fencepost_events
WHERE tenant_key = $1::text AND event_id = $2::text
FOR NO KEY UPDATE
