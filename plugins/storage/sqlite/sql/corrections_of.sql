SELECT e.seq, e.tenant_key, e.event_id, e.feature, e.quantity, e.kind, e.effect,
       e.reverses, e.original_event_id,
       e.occurred_at, e.period_start, e.period_end, e.period_source, e.plan,
       e.plan_version, e.dimensions, e.metadata, e.payload_hash, e.dedupe_hash,
       e.recorded_at
FROM fencepost_events AS e
WHERE e.tenant_key = ?1 AND e.original_event_id = ?2 AND e.seq > ?3
ORDER BY +e.seq LIMIT ?4
