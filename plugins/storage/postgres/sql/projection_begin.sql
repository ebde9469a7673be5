UPDATE {schema}.fencepost_generations
SET building = last + 1, last = last + 1, cursor = 0, paused = false, drained = false,
  watermark = (SELECT coalesce(max(seq), 0) FROM {schema}.fencepost_events),
  begun_at = clock_timestamp(), building_settings = $1
WHERE scope = 1 AND building IS NULL
RETURNING active, building
