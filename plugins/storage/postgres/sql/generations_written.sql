SELECT active, coalesce(building, 0) FROM {schema}.fencepost_generations WHERE scope = 1
