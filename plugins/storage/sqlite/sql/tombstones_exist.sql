SELECT 1 FROM fencepost_tombstones LIMIT 1
