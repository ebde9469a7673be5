-- The row is looked at after it was locked: of two that find a role free, the
-- second finds it taken.
INSERT INTO {schema}.fencepost_roles AS r (role, owner, held_until, fence)
VALUES ($1::text, $2::text, clock_timestamp() + $3::interval, 1)
ON CONFLICT (role) DO UPDATE SET
  owner = excluded.owner, held_until = clock_timestamp() + $3::interval,
  fence = CASE WHEN r.owner = excluded.owner THEN r.fence ELSE r.fence + 1 END
WHERE r.owner = excluded.owner OR r.held_until <= clock_timestamp()
RETURNING owner, held_until, fence
