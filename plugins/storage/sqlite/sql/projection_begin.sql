UPDATE fencepost_generations
SET building = last + 1, last = last + 1, watermark = ?1, cursor = 0, paused = 0,
    building_settings = ?2, begun_at = ?3
WHERE scope = 1
