SELECT to_regclass('{schema}.fencepost_migrations') IS NOT NULL
