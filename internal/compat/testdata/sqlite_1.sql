-- One claim table for every boundary. Times are seconds since 1970 on the host's clock, with milliseconds.
CREATE TABLE agent_idempotency_key (
    firm_id      TEXT NOT NULL,
    boundary     TEXT NOT NULL,
    request_id   TEXT, -- the key
    step         TEXT,
    tool         TEXT,
    sha          TEXT,
    item_id      TEXT,
    digest       BLOB, -- SHA-256 of the content that the key stands for
    attempt      TEXT, -- who claimed
    fence        INTEGER,
    mode         TEXT,
    claimed_at   REAL NOT NULL,
    lease_until  REAL,
    expires_at   REAL,
    completed_at REAL, -- null: not completed
    content      BLOB,
    outcomes     BLOB,
    unsettled    INTEGER CHECK (unsettled IN (0, 1)), -- 1: completed with an ambiguous outcome

    CONSTRAINT agent_idempotency_key_boundary CHECK (boundary IN ('operation', 'proposal', 'item', 'observation', 'value')),

    -- A column that a boundary does not use is null, and one that it needs is not. The explicit IS NOT NULLs matter: a
    -- CHECK that comes out as NULL passes.
    CONSTRAINT agent_idempotency_key_shape CHECK (CASE boundary
        WHEN 'operation' THEN request_id IS NOT NULL
            AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NULL
            AND digest IS NOT NULL AND length(digest) = 32
            AND attempt IS NOT NULL AND fence IS NOT NULL AND fence >= 1
            AND mode IS NOT NULL AND lease_until IS NOT NULL AND expires_at IS NULL
            AND (outcomes IS NULL OR completed_at IS NOT NULL)
            AND (unsettled IS NULL) = (completed_at IS NULL)
        WHEN 'proposal' THEN request_id IS NOT NULL
            AND step IS NULL AND tool IS NULL AND sha IS NULL AND item_id IS NULL
            AND digest IS NOT NULL AND length(digest) = 32
            AND attempt IS NULL AND fence IS NULL AND mode IS NULL AND lease_until IS NULL
            AND expires_at IS NOT NULL AND completed_at IS NOT NULL
            AND outcomes IS NULL AND unsettled IS NULL
        WHEN 'item' THEN request_id IS NOT NULL AND item_id IS NOT NULL
            AND step IS NULL AND tool IS NULL AND sha IS NULL AND digest IS NULL
            AND attempt IS NOT NULL AND fence IS NOT NULL
            AND mode IS NULL AND lease_until IS NULL AND expires_at IS NULL
            AND content IS NULL AND unsettled IS NULL
            AND (outcomes IS NULL) = (completed_at IS NULL)
        WHEN 'observation' THEN request_id IS NOT NULL AND item_id IS NOT NULL
            AND step IS NULL AND tool IS NULL AND sha IS NULL AND digest IS NULL
            AND attempt IS NOT NULL AND fence IS NOT NULL
            AND mode IS NULL AND lease_until IS NULL AND expires_at IS NULL
            AND content IS NULL AND unsettled IS NULL
            AND outcomes IS NOT NULL AND completed_at IS NOT NULL
        -- A versioned value: item_id is its name, fence its revision, claimed_at the time of its last change.
        WHEN 'value' THEN request_id IS NULL AND item_id IS NOT NULL
            AND step IS NULL AND tool IS NULL AND sha IS NULL AND digest IS NULL
            AND attempt IS NULL AND fence IS NOT NULL AND fence >= 1
            AND mode IS NULL AND lease_until IS NULL AND expires_at IS NULL AND completed_at IS NULL
            AND content IS NOT NULL AND outcomes IS NULL AND unsettled IS NULL
        ELSE 1 END)
) STRICT;

-- The hard backstop: whatever a program does, a key is claimed once, and proposed once.
CREATE UNIQUE INDEX agent_idempotency_key_operation ON agent_idempotency_key (firm_id, request_id)
    WHERE boundary = 'operation';
CREATE UNIQUE INDEX agent_idempotency_key_proposal ON agent_idempotency_key (firm_id, request_id)
    WHERE boundary = 'proposal';
CREATE UNIQUE INDEX agent_idempotency_key_item ON agent_idempotency_key (firm_id, request_id, item_id)
    WHERE boundary = 'item';
CREATE UNIQUE INDEX agent_idempotency_key_observation ON agent_idempotency_key (firm_id, request_id, item_id, attempt)
    WHERE boundary = 'observation';
CREATE UNIQUE INDEX agent_idempotency_key_value ON agent_idempotency_key (firm_id, item_id)
    WHERE boundary = 'value';
