UPDATE {schema}.fencepost_generations
SET last = last + 1
WHERE scope = 1 AND building IS NULL
RETURNING active, last
