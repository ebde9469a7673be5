SELECT tenant_key, feature, durable_from FROM fencepost_cutovers WHERE tenant_key = ?1 AND feature = ?2
