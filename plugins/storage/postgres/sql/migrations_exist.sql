-- From the tables, not by to_regclass: a session that waited for the lock may
-- still remember that there was none.
SELECT EXISTS (
  SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  WHERE n.nspname = '{schema}' AND c.relname = 'fencepost_migrations')
