INSERT INTO {schema}.fencepost_features (feature, signed, buckets, revision, updated_at)
VALUES ($1, $2, $3::text[], $4, clock_timestamp())
ON CONFLICT (feature) DO UPDATE SET signed = excluded.signed, buckets = excluded.buckets,
  revision = excluded.revision, updated_at = excluded.updated_at
