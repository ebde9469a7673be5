UPDATE {schema}.fencepost_generations
SET paused = $2
WHERE scope = 1 AND building = $1
