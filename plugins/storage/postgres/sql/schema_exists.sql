SELECT to_regnamespace($1::text) IS NOT NULL
