INSERT INTO {schema}.fencepost_subscriptions AS s
  (tenant_key, plan, plan_version, anchor, interval_unit, timezone, customers, revision, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 1, clock_timestamp())
ON CONFLICT (tenant_key) DO UPDATE SET
  plan = excluded.plan, plan_version = excluded.plan_version, anchor = excluded.anchor,
  interval_unit = excluded.interval_unit, timezone = excluded.timezone, customers = excluded.customers,
  revision = s.revision + 1, updated_at = excluded.updated_at
RETURNING tenant_key, plan, plan_version, anchor, interval_unit, timezone, customers, revision, updated_at
