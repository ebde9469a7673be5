SELECT coalesce(sum(open), 0) FROM fencepost_outbox_counts WHERE route = ?1
