-- Whoever takes this is alone with its class until its commit: two claims of
-- serial keys that could not see each other would take one key twice, and two
-- credits would become visible in another order than they are numbered in.
SELECT pg_advisory_xact_lock($1::integer, $2::integer)
