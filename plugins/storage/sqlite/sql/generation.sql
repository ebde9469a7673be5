SELECT active, building FROM fencepost_generations WHERE scope = 1
