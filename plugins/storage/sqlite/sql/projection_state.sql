SELECT active, building, previous,
       EXISTS (SELECT 1 FROM fencepost_totals AS t WHERE t.generation = -g.building),
       watermark, cursor, paused, active_settings, building_settings, begun_at, activated_at
FROM fencepost_generations AS g WHERE scope = 1
