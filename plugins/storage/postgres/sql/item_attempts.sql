SELECT item, lease_token, owner, started_at, finished_at, host_class, outcome, evidence,
       status, request_id, code, message, decided, fenced
FROM {schema}.fencepost_attempts WHERE item = $1::bigint ORDER BY attempt
