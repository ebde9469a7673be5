INSERT INTO fencepost_outbox_counts AS c (route, state, items, open) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (route, state) DO UPDATE SET items = c.items + excluded.items, open = c.open + excluded.open
