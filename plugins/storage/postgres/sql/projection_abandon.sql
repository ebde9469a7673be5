UPDATE {schema}.fencepost_generations
SET building = NULL, building_settings = '', previous = coalesce(previous, building)
WHERE scope = 1 AND building = $1
