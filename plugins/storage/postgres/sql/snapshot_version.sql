-- The row is held until the end: the statement after this one sees what every
-- earlier version saw. Microseconds keep a restored store above what it said.
INSERT INTO {schema}.fencepost_snapshots AS s (tenant_key, reducer, version)
VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ON CONFLICT (tenant_key, reducer) DO UPDATE SET version = greatest(s.version + 1, excluded.version)
RETURNING version
