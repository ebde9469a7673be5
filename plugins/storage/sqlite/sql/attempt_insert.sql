INSERT INTO fencepost_attempts (
  item, n, lease_token, owner, started_at, finished_at, host_class, outcome, evidence,
  status, request_id, code, message, decided, fenced, recorded_at)
VALUES (
  ?1, (SELECT coalesce(max(n), 0) + 1 FROM fencepost_attempts WHERE item = ?1),
  ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
