-- The one claim table of every boundary. The first six columns are the host application's; the rest are this library's.
CREATE SCHEMA IF NOT EXISTS {schema};

CREATE TABLE {table} (
  {tenant} text NOT NULL CONSTRAINT {name}_tenant CHECK ({tenant} <> ''),
  boundary text NOT NULL,
  request_id text,
  step text,
  tool text,
  sha text,

  item_id text,
  digest bytea,
  attempt uuid,
  fence bigint,
  mode text,
  claimed_at timestamptz,
  lease_until timestamptz,
  expires_at timestamptz,
  completed_at timestamptz,
  content bytea,
  outcomes bytea,

  CONSTRAINT {name}_boundary CHECK (boundary IN ('operation', 'proposal', 'item')),

  -- A column that a boundary does not use is null, and one that it needs is not: `IS NOT NULL` is spelled out because a
  -- CHECK that evaluates to null passes.
  CONSTRAINT {name}_shape CHECK (CASE boundary
    WHEN 'operation' THEN request_id IS NOT NULL AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NULL
      AND digest IS NOT NULL AND octet_length(digest) = 32 AND attempt IS NOT NULL AND fence IS NOT NULL AND fence >= 1
      AND mode IS NOT NULL AND claimed_at IS NOT NULL AND lease_until IS NOT NULL AND expires_at IS NULL
      AND (outcomes IS NULL OR completed_at IS NOT NULL)
    WHEN 'proposal' THEN request_id IS NOT NULL AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NULL
      AND digest IS NOT NULL AND octet_length(digest) = 32 AND attempt IS NULL AND fence IS NULL AND mode IS NULL
      AND claimed_at IS NOT NULL AND lease_until IS NULL AND expires_at IS NOT NULL AND completed_at IS NOT NULL
      AND outcomes IS NULL
    WHEN 'item' THEN request_id IS NOT NULL AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NOT NULL
      AND digest IS NULL AND attempt IS NOT NULL AND fence IS NOT NULL AND mode IS NULL AND claimed_at IS NOT NULL
      AND lease_until IS NULL AND expires_at IS NULL AND content IS NULL
      AND (outcomes IS NULL) = (completed_at IS NULL)
    ELSE true END)
) WITH (fillfactor = 85);

-- No index on completed_at, nor a predicate over it: the completing UPDATE stays heap-only.
CREATE UNIQUE INDEX {name}_operation ON {table} ({tenant}, request_id) WHERE boundary = 'operation';
CREATE UNIQUE INDEX {name}_proposal ON {table} ({tenant}, request_id) WHERE boundary = 'proposal';
CREATE UNIQUE INDEX {name}_item ON {table} ({tenant}, request_id, item_id) WHERE boundary = 'item';

-- An unset tenant reads as '' on a connection that had one before: it matches nothing.
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY {name}_tenant ON {table}
  USING ({tenant} = nullif(current_setting({setting}, true), ''))
  WITH CHECK ({tenant} = nullif(current_setting({setting}, true), ''));
