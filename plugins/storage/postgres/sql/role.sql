SELECT CASE WHEN held_until > clock_timestamp() THEN owner ELSE '' END, held_until, fence
FROM {schema}.fencepost_roles WHERE role = $1::text
