SELECT feature, signed, buckets, revision FROM fencepost_features WHERE feature = ?1
