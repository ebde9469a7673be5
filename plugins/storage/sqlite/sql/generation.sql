SELECT active FROM fencepost_generations WHERE scope = 1
