INSERT INTO fencepost_totals AS t (
  generation, tenant_key, feature, period_start, period_end, quantity, events, count, signed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (generation, tenant_key, feature, period_start) DO UPDATE
SET quantity = dec_add(t.quantity, excluded.quantity), events = t.events + excluded.events,
    count = t.count + excluded.count, signed = excluded.signed
