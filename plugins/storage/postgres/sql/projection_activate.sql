UPDATE {schema}.fencepost_generations
SET previous = active, active = building, building = NULL, activated_at = clock_timestamp(),
  active_settings = building_settings, building_settings = ''
WHERE scope = 1 AND building = $1 AND drained AND NOT paused AND cursor >= watermark
