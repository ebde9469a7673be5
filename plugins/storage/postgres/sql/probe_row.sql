INSERT INTO {schema}.fencepost_meta (key, value) VALUES ('probe', 0) ON CONFLICT (key) DO NOTHING
