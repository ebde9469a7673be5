SELECT DISTINCT -t.generation
FROM {schema}.fencepost_totals AS t, {schema}.fencepost_generations AS g
WHERE t.generation < 0 AND t.generation <> -coalesce(g.building, 0)
