UPDATE fencepost_meta SET value = value + 1 WHERE key = 'claims'
