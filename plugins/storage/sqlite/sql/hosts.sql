SELECT host, version, started_at, beat_at, flushed_through, claims, noticed FROM fencepost_hosts
WHERE beat_at >= ?1 ORDER BY host
