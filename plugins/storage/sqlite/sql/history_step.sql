SELECT value FROM fencepost_history WHERE tenant_key = ?1 AND feature = ?2 AND start = ?3
