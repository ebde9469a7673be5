SELECT step_start, value::text
FROM {schema}.fencepost_history
WHERE tenant_key = $1 AND feature = $2 AND step_start >= $3 AND step_start < $4
ORDER BY step_start
LIMIT $5
