INSERT INTO fencepost_features (feature, signed, buckets, revision) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (feature) DO UPDATE
SET signed = excluded.signed, buckets = excluded.buckets, revision = excluded.revision
