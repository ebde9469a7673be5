UPDATE fencepost_generations
SET previous = active, active = building, building = NULL, paused = 0,
    active_settings = building_settings, building_settings = '', activated_at = ?1
WHERE scope = 1
