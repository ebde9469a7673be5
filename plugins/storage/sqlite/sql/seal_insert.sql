INSERT INTO fencepost_bucket_seals (tenant_key, feature, generation, before, seq, sealed_at)
VALUES (?1, ?2, ?3, ?4, (SELECT value FROM fencepost_meta WHERE key = 'last_event'), ?5)
