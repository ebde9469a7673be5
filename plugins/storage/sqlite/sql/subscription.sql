SELECT tenant_key, plan, plan_version, anchor, interval, timezone, customers, revision, updated_at
FROM fencepost_subscriptions WHERE tenant_key = ?1
