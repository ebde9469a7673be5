UPDATE {schema}.fencepost_generations
SET drained = true
WHERE scope = 1
