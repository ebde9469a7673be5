UPDATE fencepost_report_bounds SET item = ?2 WHERE item = ?1
