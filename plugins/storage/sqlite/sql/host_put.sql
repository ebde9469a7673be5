INSERT INTO fencepost_hosts (host, version, started_at, beat_at, flushed_through, claims, noticed)
VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6)
ON CONFLICT (host) DO UPDATE SET
  version = excluded.version, beat_at = excluded.beat_at, flushed_through = excluded.flushed_through, claims = excluded.claims,
  noticed = excluded.noticed
