SELECT feature, signed, buckets, revision FROM {schema}.fencepost_features ORDER BY feature
