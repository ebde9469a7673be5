ROLLBACK TO fencepost_call
