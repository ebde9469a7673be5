-- CREATE SCHEMA IF NOT EXISTS wants the privilege to create one where it exists
-- too.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '{schema}') THEN
    CREATE SCHEMA {schema};
  END IF;
END
$$
