SELECT value FROM fencepost_meta WHERE key = 'last_beat'
