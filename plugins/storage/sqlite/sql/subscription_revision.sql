SELECT revision FROM fencepost_subscriptions WHERE tenant_key = ?1
