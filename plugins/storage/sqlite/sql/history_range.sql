SELECT start, value FROM fencepost_history
WHERE tenant_key = ?1 AND feature = ?2 AND start >= ?3 AND start < ?4
ORDER BY start LIMIT ?5
