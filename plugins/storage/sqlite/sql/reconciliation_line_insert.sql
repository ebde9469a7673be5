INSERT INTO fencepost_reconciliation_lines (
  run, line, customer, feature, meter, from_time, to_time, recorded, reported, provider, difference, cause, confirmed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
