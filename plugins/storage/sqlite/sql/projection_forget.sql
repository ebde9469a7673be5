UPDATE fencepost_generations SET previous = NULL WHERE scope = 1 AND previous = ?1
