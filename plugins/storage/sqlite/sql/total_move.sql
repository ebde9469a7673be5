UPDATE fencepost_totals
SET quantity = dec_add(quantity, ?5), events = events + ?6, count = count + ?7, signed = ?8
WHERE generation = ?1 AND tenant_key = ?2 AND feature = ?3 AND period_start = ?4
