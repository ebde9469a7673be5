SELECT count(*) FROM fencepost_attempts WHERE fenced = 1
