SELECT EXISTS (SELECT 1 FROM fencepost_subscriptions WHERE tenant_key = ?1)
    OR EXISTS (SELECT 1 FROM fencepost_credits WHERE tenant_key = ?1)
    OR EXISTS (SELECT 1 FROM fencepost_events WHERE tenant_key = ?1)
