-- By the gauge, which is kept in the transactions that move items.
SELECT coalesce(sum(open), 0) > 0 FROM {schema}.fencepost_outbox_counts WHERE route = $1::bigint
