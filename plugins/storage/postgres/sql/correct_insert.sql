-- What a correction has from its original is copied here: B30.
INSERT INTO {schema}.fencepost_events
  (tenant_key, event_id, feature, quantity, effect, kind, reverses, original_event_id, occurred_at,
   period_start, period_end, period_source, plan, plan_version, dimensions, metadata, payload_hash,
   dedupe_hash, recorded_at)
SELECT o.tenant_key, $3::text, o.feature, $4::text::numeric, -sign(o.quantity) * $4::text::numeric, 'correction',
  $5::boolean, o.event_id, o.occurred_at, o.period_start, o.period_end, o.period_source, o.plan, o.plan_version,
  o.dimensions, $6::text, $7::bytea, $8::bytea, clock_timestamp()
FROM {schema}.fencepost_events AS o WHERE o.tenant_key = $1::text AND o.event_id = $2::text
ON CONFLICT (tenant_key, event_id) DO NOTHING
RETURNING seq, effect::text
