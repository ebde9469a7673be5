DELETE FROM fencepost_hosts WHERE beat_at < ?1
