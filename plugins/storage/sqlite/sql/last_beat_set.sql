UPDATE fencepost_meta SET value = ?1 WHERE key = 'last_beat' AND value < ?1
