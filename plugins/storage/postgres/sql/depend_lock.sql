SELECT o.item, o.state, o.settled_at IS NOT NULL, o.superseded_by IS NOT NULL
FROM unnest($1::bigint[]) AS d (item)
JOIN {schema}.fencepost_outbox_state AS o ON o.item = ANY (ARRAY[d.item])
ORDER BY o.item
FOR NO KEY UPDATE OF o
