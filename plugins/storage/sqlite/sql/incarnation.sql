SELECT (SELECT value FROM fencepost_meta WHERE key = 'store'),
       (SELECT value FROM fencepost_meta WHERE key = 'claims'),
       (SELECT value FROM fencepost_meta WHERE key = 'restores')
