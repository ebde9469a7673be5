SELECT coalesce(sum(events), 0) FROM fencepost_totals
WHERE generation = (SELECT active FROM fencepost_generations WHERE scope = 1) AND tenant_key = ?1
