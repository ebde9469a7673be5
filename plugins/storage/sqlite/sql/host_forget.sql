DELETE FROM fencepost_hosts WHERE host = ?1
