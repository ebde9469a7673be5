SELECT EXISTS (
  SELECT 1 FROM {schema}.fencepost_events WHERE tenant_key = $1::text AND event_id = $2::text)
