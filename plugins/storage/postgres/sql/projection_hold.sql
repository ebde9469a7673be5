SELECT active, coalesce(building, 0), watermark, cursor, paused, drained
FROM {schema}.fencepost_generations
WHERE scope = 1
FOR UPDATE
