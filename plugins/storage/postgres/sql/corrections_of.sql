SELECT seq, tenant_key, event_id, feature, quantity::text, effect::text, kind, reverses, original_event_id,
       occurred_at, period_start, period_end, period_source, plan, plan_version, dimensions, metadata,
       payload_hash, dedupe_hash, recorded_at
FROM {schema}.fencepost_events
WHERE tenant_key = $1 AND original_event_id = $2 AND seq > $3
ORDER BY seq LIMIT $4
