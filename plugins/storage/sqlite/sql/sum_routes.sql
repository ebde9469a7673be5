SELECT route FROM fencepost_routes WHERE exporter = ?1 AND destination_account = ?2 AND mode = ?3
