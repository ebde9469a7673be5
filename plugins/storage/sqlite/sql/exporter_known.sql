SELECT EXISTS (SELECT 1 FROM fencepost_routes WHERE exporter = ?1),
       EXISTS (SELECT 1 FROM fencepost_report_bounds WHERE exporter = ?1)
