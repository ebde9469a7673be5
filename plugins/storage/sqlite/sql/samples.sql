SELECT host, boot_id, boottime, store_at FROM fencepost_clock_samples ORDER BY sample
