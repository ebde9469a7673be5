SELECT r.exporter, c.state, sum(c.items)::bigint, sum(c.open)::bigint, sum(c.lines)::bigint
FROM (
  SELECT route, state, sum(items) AS items, sum(open) AS open, count(*) AS lines
  FROM {schema}.fencepost_outbox_counts GROUP BY route, state) AS c
JOIN {schema}.fencepost_routes AS r ON r.route = c.route
GROUP BY r.exporter, c.state
ORDER BY r.exporter, c.state
