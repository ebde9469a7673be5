-- Lines of the gauge become one for each state of a route. Lines that somebody
-- else folds are left alone, and so nobody waits.
WITH gone AS (
  DELETE FROM {schema}.fencepost_outbox_counts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.fencepost_outbox_counts LIMIT $1::integer FOR UPDATE SKIP LOCKED))
  RETURNING route, state, items, open
),
folded AS (
  INSERT INTO {schema}.fencepost_outbox_counts (route, state, items, open)
  SELECT route, state, sum(items), sum(open) FROM gone GROUP BY route, state
  HAVING sum(items) <> 0 OR sum(open) <> 0
)
SELECT count(*) FROM gone
