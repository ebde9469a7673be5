SELECT greatest(clock_timestamp() - i.created_at, interval '0')
FROM {schema}.fencepost_outbox_state AS s
JOIN {schema}.fencepost_outbox_items AS i ON i.item = s.item
WHERE s.state = 'pending' AND s.superseded_by IS NULL
ORDER BY s.item LIMIT 1
