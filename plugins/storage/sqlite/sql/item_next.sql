SELECT seq + 1 FROM sqlite_sequence WHERE name = 'fencepost_outbox_items'
