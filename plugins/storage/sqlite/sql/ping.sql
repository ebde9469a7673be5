INSERT INTO fencepost_meta (key, value) VALUES ('ping', randomblob(49152))
ON CONFLICT (key) DO UPDATE SET value = excluded.value
