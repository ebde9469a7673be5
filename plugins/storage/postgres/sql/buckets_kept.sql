SELECT coalesce(buckets, '{}') FROM {schema}.fencepost_features WHERE feature = $1
