UPDATE fencepost_report_bounds SET exporter = ?2 WHERE exporter = ?1
