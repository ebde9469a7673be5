SELECT tenant_key, plan, plan_version, anchor, interval_unit, timezone, customers, revision, updated_at
FROM {schema}.fencepost_subscriptions WHERE tenant_key = ANY ($1::text[])
