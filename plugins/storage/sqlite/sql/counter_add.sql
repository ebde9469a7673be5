INSERT INTO fencepost_counters AS c (tenant_key, feature, period_start, period_end, value)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (tenant_key, feature, period_start) DO UPDATE
SET period_end = excluded.period_end, value = dec_add(c.value, excluded.value)
