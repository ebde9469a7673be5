-- What others depend on, and how many do.
SELECT o.item, i.digest, o.state, o.unresolved, o.disputed,
       CASE WHEN o.first_attempt_at IS NULL THEN interval '0' ELSE clock_timestamp() - o.first_attempt_at END,
       (SELECT count(*) FROM {schema}.fencepost_outbox_items AS d
        JOIN {schema}.fencepost_outbox_state AS w ON w.item = ANY (ARRAY[d.item])
        WHERE d.depends_on = o.item AND coalesce(w.superseded_by, 0) = 0)
FROM unnest($1::bigint[]) AS p (item)
JOIN {schema}.fencepost_outbox_state AS o ON o.item = ANY (ARRAY[p.item])
JOIN {schema}.fencepost_outbox_items AS i ON i.item = ANY (ARRAY[p.item])
