INSERT INTO fencepost_totals (
  generation, tenant_key, feature, period_start, period_end, quantity, events, count, signed)
VALUES (?1, ?2, ?3, ?4, ?5, '0', 0, 0, ?6)
ON CONFLICT (generation, tenant_key, feature, period_start) DO NOTHING
