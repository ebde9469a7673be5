-- Once for each claim that took something, together with its COMMIT: the row is
-- held to that, so that the order of the counter is that of the commits, and no
-- other claim waits for what this one read and sent before.
WITH raised AS (
  UPDATE {schema}.fencepost_store AS k SET claims = k.claims + 1
  WHERE k.scope = 1
  RETURNING k.claims, k.id, k.restores, k.restored_through
)
SELECT r.id, c.system, c.timeline, r.claims, r.restores, r.restored_through
FROM raised AS r CROSS JOIN {schema}.fencepost_cluster() AS c
