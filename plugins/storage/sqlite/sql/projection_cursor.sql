UPDATE fencepost_generations SET cursor = ?1 WHERE scope = 1
