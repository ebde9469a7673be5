-- A heartbeat in one statement, all by one reading of the clock. What left is
-- kept until it is old: its last beat may be the latest of all.
WITH t AS MATERIALIZED (SELECT clock_timestamp() AS now),
last AS MATERIALIZED (SELECT max(beat_at) AS at FROM {schema}.fencepost_hosts),
gone AS (
  DELETE FROM {schema}.fencepost_hosts WHERE host = ANY (ARRAY(
    SELECT h.host FROM {schema}.fencepost_hosts AS h
    WHERE h.beat_at < (SELECT now FROM t) - interval '48 hours' AND h.host <> $1::text
    ORDER BY h.host FOR UPDATE SKIP LOCKED))
),
old AS (
  DELETE FROM {schema}.fencepost_clock_samples WHERE sample = ANY (ARRAY(
    SELECT c.sample FROM {schema}.fencepost_clock_samples AS c
    WHERE c.store_at < (SELECT now FROM t) - interval '48 hours'
    ORDER BY c.sample FOR UPDATE SKIP LOCKED))
),
beat AS (
  INSERT INTO {schema}.fencepost_hosts AS h (host, version, started_at, beat_at, flushed_through, claims, noticed)
  SELECT $1::text, $2::text, t.now, t.now, $5::timestamptz, $6::bigint, $8::timestamptz FROM t WHERE NOT $7::boolean
  ON CONFLICT (host) DO UPDATE SET
    version = excluded.version, beat_at = excluded.beat_at, left_at = NULL,
    started_at = CASE WHEN h.left_at IS NULL THEN h.started_at ELSE excluded.started_at END,
    flushed_through = excluded.flushed_through, claims = excluded.claims, noticed = excluded.noticed
),
left_us AS (
  UPDATE {schema}.fencepost_hosts AS h SET left_at = t.now FROM t WHERE h.host = $1::text AND $7::boolean
),
sample AS (
  INSERT INTO {schema}.fencepost_clock_samples (host, boot_id, boottime, store_at)
  SELECT $1::text, $3::text, $4::bigint, t.now FROM t WHERE $3::text <> '' AND NOT $7::boolean
)
SELECT t.now, last.at, k.id, c.system, c.timeline,
       k.claims, k.restores, k.restored_through
FROM t CROSS JOIN last CROSS JOIN {schema}.fencepost_store AS k CROSS JOIN {schema}.fencepost_cluster() AS c
WHERE k.scope = 1
