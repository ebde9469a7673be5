-- Whoever claims items of serial keys is alone with them until its commit: two
-- claims that could not see each other would take one key twice.
SELECT pg_advisory_xact_lock($1::integer, $2::integer)
