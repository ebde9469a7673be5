UPDATE fencepost_routes SET exporter = ?2 WHERE exporter = ?1
