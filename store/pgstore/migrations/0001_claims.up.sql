-- The one claim table of every boundary: made new, or an existing one of the host application's extended.
CREATE SCHEMA IF NOT EXISTS {schema};

SELECT set_config('confirmexec.made_table', (to_regclass({table_literal}) IS NULL)::text, true);

CREATE TABLE IF NOT EXISTS {table} (
  {tenant} text NOT NULL,
  boundary text NOT NULL,
  request_id text,
  step text,
  tool text,
  sha text
) WITH (fillfactor = 85);

DO $confirmexec$
DECLARE
  made boolean := current_setting('confirmexec.made_table')::boolean;
  names text;
  c record;
BEGIN
  IF made THEN
    COMMENT ON TABLE {table} IS 'confirmexec: made';
  END IF;

  -- Columns. Those that this library adds are marked, so that going down drops no others.
  FOR c IN SELECT * FROM (VALUES
    ('item_id', 'text'), ('digest', 'bytea'), ('attempt', 'uuid'), ('fence', 'bigint'), ('mode', 'text'),
    ('claimed_at', 'timestamp with time zone'), ('lease_until', 'timestamp with time zone'),
    ('expires_at', 'timestamp with time zone'), ('completed_at', 'timestamp with time zone'),
    ('content', 'bytea'), ('outcomes', 'bytea'), ('unsettled', 'boolean')) AS v (name, type)
  LOOP
    SELECT format_type(atttypid, atttypmod) INTO names FROM pg_attribute
      WHERE attrelid = {table_literal}::regclass AND attname = c.name AND NOT attisdropped;
    IF NOT FOUND THEN
      EXECUTE format('ALTER TABLE {table} ADD COLUMN %I %s', c.name, c.type);
      EXECUTE format('COMMENT ON COLUMN {table}.%I IS %L', c.name, 'confirmexec: added');
    ELSIF names <> c.type THEN
      RAISE EXCEPTION 'column % of the claim table is of type %, and must be %', c.name, names, c.type
        USING HINT = 'rename the existing column, or name another table in pgstore.Config';
    END IF;
  END LOOP;

  SELECT string_agg(attname, ', ') INTO names FROM pg_attribute
    WHERE attrelid = {table_literal}::regclass AND attnum > 0 AND NOT attisdropped AND attnotnull AND NOT atthasdef
      AND attidentity = '' AND attname NOT IN ({tenant_literal}, 'boundary');
  IF names IS NOT NULL THEN
    RAISE EXCEPTION 'columns of the claim table must be nullable or have a default: %', names
      USING HINT = 'claims of this library leave them empty; drop NOT NULL and say in a CHECK for which boundaries they are required';
  END IF;

  SELECT string_agg(DISTINCT quote_literal(boundary), ', ') INTO names FROM {table} WHERE boundary NOT IN ({boundaries});
  IF names IS NOT NULL THEN
    RAISE EXCEPTION 'the claim table holds boundaries that are not configured: %', names
      USING HINT = 'list the boundaries of the table''s owner in pgstore.Config.OtherBoundaries';
  END IF;

  -- The owner's checks go on to hold for the owner's rows; ours have checks of their own.
  FOR c IN SELECT conname, pg_get_expr(conbin, conrelid) AS expr, pg_get_constraintdef(oid) AS def FROM pg_constraint
    WHERE conrelid = {table_literal}::regclass AND contype = 'c'
  LOOP
    EXECUTE format('ALTER TABLE {table} DROP CONSTRAINT %I', c.conname);
    EXECUTE format('ALTER TABLE {table} ADD CONSTRAINT %I CHECK (boundary IN (''operation'', ''proposal'', ''item'', ''observation'', ''value'') OR (%s))',
      c.conname, c.expr);
    EXECUTE format('COMMENT ON CONSTRAINT %I ON {table} IS %L', c.conname, 'confirmexec: was ' || c.def);
  END LOOP;
END $confirmexec$;

ALTER TABLE {table}
  ADD CONSTRAINT confirmexec_tenant CHECK ({tenant}::text <> ''),

  ADD CONSTRAINT confirmexec_boundary CHECK (boundary IN ({boundaries})),

  -- A column that a boundary does not use is null, and one that it needs is not: `IS NOT NULL` is spelled out because a
  -- CHECK that evaluates to null passes.
  ADD CONSTRAINT confirmexec_shape CHECK (CASE boundary
    WHEN 'operation' THEN request_id IS NOT NULL AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NULL
      AND digest IS NOT NULL AND octet_length(digest) = 32 AND attempt IS NOT NULL AND fence IS NOT NULL AND fence >= 1
      AND mode IS NOT NULL AND claimed_at IS NOT NULL AND lease_until IS NOT NULL AND expires_at IS NULL
      AND (outcomes IS NULL OR completed_at IS NOT NULL) AND (unsettled IS NULL) = (completed_at IS NULL)
    WHEN 'proposal' THEN request_id IS NOT NULL AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NULL
      AND digest IS NOT NULL AND octet_length(digest) = 32 AND attempt IS NULL AND fence IS NULL AND mode IS NULL
      AND claimed_at IS NOT NULL AND lease_until IS NULL AND expires_at IS NOT NULL AND completed_at IS NOT NULL
      AND outcomes IS NULL AND unsettled IS NULL
    WHEN 'item' THEN request_id IS NOT NULL AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NOT NULL
      AND digest IS NULL AND attempt IS NOT NULL AND fence IS NOT NULL AND mode IS NULL AND claimed_at IS NOT NULL
      AND lease_until IS NULL AND expires_at IS NULL AND content IS NULL AND unsettled IS NULL
      AND (outcomes IS NULL) = (completed_at IS NULL)
    WHEN 'observation' THEN request_id IS NOT NULL AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NOT NULL
      AND digest IS NULL AND attempt IS NOT NULL AND fence IS NOT NULL AND mode IS NULL AND claimed_at IS NOT NULL
      AND lease_until IS NULL AND expires_at IS NULL AND content IS NULL AND unsettled IS NULL
      AND outcomes IS NOT NULL AND completed_at IS NOT NULL
    -- A versioned value: item_id is its name, fence its revision, claimed_at the time of its last change.
    WHEN 'value' THEN request_id IS NULL AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NOT NULL
      AND digest IS NULL AND attempt IS NULL AND fence IS NOT NULL AND fence >= 1 AND mode IS NULL AND claimed_at IS NOT NULL
      AND lease_until IS NULL AND expires_at IS NULL AND completed_at IS NULL AND content IS NOT NULL
      AND outcomes IS NULL AND unsettled IS NULL
    ELSE true END);

-- No index on completed_at, nor a predicate over it: the completing UPDATE stays heap-only.
CREATE UNIQUE INDEX {name}_operation ON {table} ({tenant}, request_id) WHERE boundary = 'operation';
CREATE UNIQUE INDEX {name}_proposal ON {table} ({tenant}, request_id) WHERE boundary = 'proposal';
CREATE UNIQUE INDEX {name}_item ON {table} ({tenant}, request_id, item_id) WHERE boundary = 'item';
CREATE UNIQUE INDEX {name}_observation ON {table} ({tenant}, request_id, item_id, attempt) WHERE boundary = 'observation';
CREATE UNIQUE INDEX {name}_value ON {table} ({tenant}, item_id) WHERE boundary = 'value';

-- A table that was here before keeps its row security as it is: switching it on is a step of its own
-- (pgstore.EnableRowSecurity), since its owner's other code may not bind a tenant.
DO $confirmexec$
BEGIN
  IF current_setting('confirmexec.made_table')::boolean THEN
    {row_security}
  END IF;
END $confirmexec$;
