INSERT INTO {schema}.fencepost_meta AS m (key, value) VALUES ('pings', 1)
ON CONFLICT (key) DO UPDATE SET value = m.value + 1
