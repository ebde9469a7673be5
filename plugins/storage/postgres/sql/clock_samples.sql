SELECT host, boot_id, boottime, store_at FROM {schema}.fencepost_clock_samples ORDER BY sample
