UPDATE {schema}.fencepost_generations
SET building = $2, cursor = 0, paused = false, drained = false,
  watermark = (SELECT coalesce(max(seq), 0) FROM {schema}.fencepost_events),
  begun_at = clock_timestamp(), building_settings = $3
WHERE scope = 1 AND building IS NULL AND active = $1
