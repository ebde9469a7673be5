DELETE FROM fencepost_attempts WHERE item = ?1
