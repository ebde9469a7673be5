SELECT r.exporter, c.state, sum(c.items), sum(c.open)
FROM fencepost_outbox_counts AS c JOIN fencepost_routes AS r ON r.route = c.route
GROUP BY r.exporter, c.state HAVING sum(c.items) > 0 ORDER BY r.exporter, c.state
