    -- An unset tenant reads as '' on a connection that had one before: it matches nothing.
    EXECUTE format('CREATE POLICY confirmexec_tenant ON {table}
      USING ({tenant} = nullif(current_setting(%1$L, true), '''')::%2$s)
      WITH CHECK ({tenant} = nullif(current_setting(%1$L, true), '''')::%2$s)', {setting},
      (SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = {table_literal}::regclass AND attname = {tenant_literal}));
    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
    ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
