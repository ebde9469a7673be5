INSERT INTO fencepost_totals AS t (tenant_key, feature, period_start, generation, period_end, quantity, events)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (tenant_key, feature, period_start, generation) DO UPDATE
SET quantity = dec_add(t.quantity, excluded.quantity), events = t.events + excluded.events
