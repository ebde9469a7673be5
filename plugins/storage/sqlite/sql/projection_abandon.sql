UPDATE fencepost_generations
SET building = NULL, watermark = 0, cursor = 0, paused = 0, building_settings = '', begun_at = NULL,
  previous = coalesce(previous, building)
WHERE scope = 1
