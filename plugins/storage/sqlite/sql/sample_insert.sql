INSERT INTO fencepost_clock_samples (host, boot_id, boottime, store_at) VALUES (?1, ?2, ?3, ?4)
