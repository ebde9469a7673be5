-- Which of these items others wait for. In a statement of its own, after the
-- items were locked: an insert that came before the lock is seen here.
SELECT w.waits_for FROM {schema}.fencepost_outbox_state AS w
WHERE w.waits_for = ANY (ARRAY(SELECT unnest($1::bigint[]))) AND w.superseded_by IS NULL
ORDER BY w.waits_for, w.item
