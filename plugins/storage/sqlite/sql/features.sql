SELECT feature, signed, buckets, revision FROM fencepost_features ORDER BY feature
