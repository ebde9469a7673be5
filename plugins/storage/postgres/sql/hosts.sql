SELECT host, version, started_at, beat_at, flushed_through, claims, noticed
FROM {schema}.fencepost_hosts
WHERE left_at IS NULL AND beat_at >= (SELECT clock_timestamp() - $1::interval)
ORDER BY host
