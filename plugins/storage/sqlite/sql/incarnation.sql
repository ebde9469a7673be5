SELECT (SELECT value FROM fencepost_meta WHERE key = 'store'),
       (SELECT value FROM fencepost_meta WHERE key = 'claims'),
       (SELECT value FROM fencepost_meta WHERE key = 'restores'),
       (SELECT nullif(value, 0) FROM fencepost_meta WHERE key = 'restored_through')
