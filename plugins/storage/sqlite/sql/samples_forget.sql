DELETE FROM fencepost_clock_samples WHERE store_at < ?1
