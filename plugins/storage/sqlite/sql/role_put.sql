INSERT INTO fencepost_roles (role, owner, until, fence) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (role) DO UPDATE SET owner = excluded.owner, until = excluded.until, fence = excluded.fence
