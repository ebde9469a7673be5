SELECT line, customer, feature, meter, from_time, to_time, recorded, reported, provider, difference, cause, confirmed
FROM fencepost_reconciliation_lines WHERE run = ?1 AND line > ?2 ORDER BY line LIMIT ?3
