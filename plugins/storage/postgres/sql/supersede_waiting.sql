SELECT w.item, w.state, w.quarantine_reason, w.settled_at IS NOT NULL, w.attempt_budget, i.subject_ref
FROM {schema}.fencepost_outbox_state AS w
JOIN {schema}.fencepost_outbox_items AS i ON i.item = w.item
WHERE w.waits_for = $1::bigint AND w.superseded_by IS NULL
ORDER BY w.item
FOR NO KEY UPDATE OF w
