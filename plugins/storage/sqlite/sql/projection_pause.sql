UPDATE fencepost_generations SET paused = ?1 WHERE scope = 1
