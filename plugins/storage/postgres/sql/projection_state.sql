SELECT active, coalesce(building, 0), coalesce(previous, 0),
  CASE WHEN building IS NOT NULL AND NOT drained THEN -building ELSE 0 END,
  CASE WHEN building IS NOT NULL THEN watermark ELSE 0 END,
  CASE WHEN building IS NOT NULL THEN cursor ELSE 0 END,
  building IS NOT NULL AND paused, active_settings, building_settings, begun_at, activated_at
FROM {schema}.fencepost_generations
WHERE scope = 1
