UPDATE {schema}.fencepost_generations
SET building = NULL, building_settings = ''
WHERE scope = 1 AND building = $1
