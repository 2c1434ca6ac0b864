-- Takes the library out of the table again, or the table away if the library made it and nobody else uses it. It refuses
-- while there are operations, since without them a key could be executed again, and while there are values, since without them
-- what their revisions fenced off could come back.
ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;

DO $confirmexec$
DECLARE
  made boolean;
  c record;
BEGIN
  IF EXISTS (SELECT FROM {table} WHERE boundary IN ('operation', 'value')) AND coalesce(current_setting('confirmexec.discard', true), '') <> 'on' THEN
    RAISE EXCEPTION 'the claim table holds operations or values' USING ERRCODE = 'object_in_use',
      HINT = 'without them keys could be executed again, and what was fenced off could come back; if that is wanted, use pgstore.MigrateDownDiscarding or SET confirmexec.discard = on';
  END IF;
  DELETE FROM {table} WHERE boundary IN ('operation', 'proposal', 'item', 'observation', 'value');

  made := coalesce(obj_description({table_literal}::regclass, 'pg_class'), '') = 'confirmexec: made';
  IF made AND NOT EXISTS (SELECT FROM {table}) THEN
    DROP TABLE {table};
    RETURN;
  END IF;

  IF EXISTS (SELECT FROM pg_policy WHERE polrelid = {table_literal}::regclass AND polname = 'confirmexec_tenant') THEN
    DROP POLICY confirmexec_tenant ON {table};
    ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
  END IF;
  ALTER TABLE {table} DROP CONSTRAINT confirmexec_tenant, DROP CONSTRAINT confirmexec_boundary, DROP CONSTRAINT confirmexec_shape;
  DROP INDEX {schema}.{name}_operation, {schema}.{name}_proposal, {schema}.{name}_item, {schema}.{name}_observation, {schema}.{name}_value;

  FOR c IN SELECT conname, obj_description(oid, 'pg_constraint') AS was FROM pg_constraint
    WHERE conrelid = {table_literal}::regclass AND contype = 'c' AND obj_description(oid, 'pg_constraint') LIKE 'confirmexec: was %'
  LOOP
    EXECUTE format('ALTER TABLE {table} DROP CONSTRAINT %I', c.conname);
    EXECUTE format('ALTER TABLE {table} ADD CONSTRAINT %I %s', c.conname, substr(c.was, length('confirmexec: was ') + 1));
  END LOOP;
  FOR c IN SELECT attname FROM pg_attribute
    WHERE attrelid = {table_literal}::regclass AND NOT attisdropped AND col_description(attrelid, attnum) = 'confirmexec: added'
  LOOP
    EXECUTE format('ALTER TABLE {table} DROP COLUMN %I', c.attname);
  END LOOP;
END $confirmexec$;
