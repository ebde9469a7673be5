SELECT seq, tenant_key, event_id, feature, quantity::text, effect::text, kind, reverses, original_event_id,
       occurred_at, period_start, period_end, period_source, plan, plan_version, dimensions, metadata,
       payload_hash, dedupe_hash, recorded_at
FROM {schema}.fencepost_events
WHERE seq > $1 AND ($3::text = '' OR tenant_key = $3::text) AND ($4::text = '' OR feature = $4::text)
ORDER BY seq LIMIT $2
