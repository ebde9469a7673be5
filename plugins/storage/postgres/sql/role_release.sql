UPDATE {schema}.fencepost_roles SET owner = '', held_until = clock_timestamp()
WHERE role = $1::text AND owner = $2::text
