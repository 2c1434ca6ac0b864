package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// found runs Check and returns its findings, one line each, but for those about durability: the tests' server has none.
func found(t *testing.T, p *pgxpool.Pool, cfg *pgstore.Config) (lines []string) {
	t.Helper()
	err := pgstore.Check(t.Context(), p, cfg)
	ce, ok := errors.AsType[*pgstore.CheckError](err)
	require.True(t, ok, "%v", err)
	for _, f := range ce.Findings {
		assert.NotEmpty(t, f.Fix)
		assert.Contains(t, err.Error(), f.Problem)
		if f.Kind != "durability" {
			lines = append(lines, f.Kind+": "+f.Problem)
		}
	}
	return lines
}

// S27, S28b: a plain role on a migrated table has nothing against it, but for a server that may lose commits.
func TestCheck(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(t)
	err := pgstore.Check(t.Context(), app, nil)
	assert.ErrorContains(t, err, "fsync is off")
	assert.ErrorContains(t, err, "full_page_writes is off")
	assert.Empty(t, found(t, app, nil))
	assert.Empty(t, found(t, app, nil), "it leaves nothing behind")

	_, err = db.AdminPool(t).Exec(t.Context(), `ALTER TABLE agents.agent_idempotency_key SET UNLOGGED`)
	require.NoError(t, err)
	assert.ErrorContains(t, pgstore.Check(t.Context(), app, nil), "the claim table is not logged")
	assert.Contains(t, strings.Join(found(t, db.AdminPool(t), nil), "\n"), "superuser")
	assert.Equal(t, []string{"schema: the claim table does not exist, or the role may not see its schema"},
		found(t, app, &pgstore.Config{Table: "other"}))
}

// S16: a role that row security does not bind is refused, whichever way it escapes.
func TestCheckRowSecurity(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin, app := db.AdminPool(t), db.Pool(t)
	const table = `ALTER TABLE agents.agent_idempotency_key `
	for _, c := range []struct{ change, undo, want string }{
		{table + `DISABLE ROW LEVEL SECURITY`, table + `ENABLE ROW LEVEL SECURITY`, "row_security: row security is off"},
		{table + `OWNER TO ` + pgtest.AppRole + `; ` + table + `NO FORCE ROW LEVEL SECURITY`,
			table + `FORCE ROW LEVEL SECURITY`, "row_security: the role owns the table and row security is not forced"},
		{`CREATE ROLE check_owner; GRANT check_owner TO ` + pgtest.AppRole + `; ` + table + `OWNER TO check_owner; ` + table + `NO FORCE ROW LEVEL SECURITY`,
			table + `FORCE ROW LEVEL SECURITY; ` + table + `OWNER TO CURRENT_USER; DROP ROLE check_owner;
			   GRANT SELECT, INSERT, UPDATE, DELETE ON agents.agent_idempotency_key TO ` + pgtest.AppRole,
			"row_security: the role owns the table and row security is not forced"},
		{`CREATE POLICY everybody ON agents.agent_idempotency_key USING (true)`, `DROP POLICY everybody ON agents.agent_idempotency_key`,
			"row_security: the policy everybody does not tell tenants apart"},
		{`CREATE POLICY everybody ON agents.agent_idempotency_key FOR INSERT WITH CHECK (step IS NULL)`,
			`DROP POLICY everybody ON agents.agent_idempotency_key`, "row_security: the policy everybody does not tell tenants apart"},
		{`REVOKE UPDATE ON agents.agent_idempotency_key FROM ` + pgtest.AppRole, `GRANT UPDATE ON agents.agent_idempotency_key TO ` + pgtest.AppRole,
			"privilege: the role may not select, insert and update"},
		{`REVOKE EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text) FROM PUBLIC`,
			`GRANT EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text) TO PUBLIC`,
			"privilege: the role may not call pg_logical_emit_message, without which no commit whose reply was lost can be told"},
	} {
		_, err := admin.Exec(t.Context(), c.change)
		require.NoError(t, err)
		assert.Equal(t, []string{c.want}, found(t, app, nil))
		_, err = admin.Exec(t.Context(), c.undo)
		require.NoError(t, err)
		assert.Empty(t, found(t, app, nil))
	}
	_, err := admin.Exec(t.Context(), `CREATE ROLE check_bypass LOGIN BYPASSRLS; GRANT `+pgtest.AppRole+` TO check_bypass`)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = admin.Exec(t.Context(), `DROP ROLE check_bypass`) })
	dsn, err := pgtest.WithDSN(db.AppDSN, "user", "check_bypass")
	require.NoError(t, err)
	p, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer p.Close()
	if p.Ping(t.Context()) == nil { // a server that asks for passwords does not let it in
		assert.Equal(t, []string{"role: the role has BYPASSRLS"}, found(t, p, nil))
	}
}

// S16: policies of the table's owner's own are its own, if they tell tenants apart; those of other roles do not matter.
func TestCheckWithPoliciesOfTheOwner(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := db.AdminPool(t).Exec(t.Context(), `CREATE ROLE check_auditor;
		CREATE POLICY own ON agents.agent_idempotency_key USING (firm_id = current_setting('app.firm_id', true));
		CREATE POLICY audit ON agents.agent_idempotency_key FOR SELECT TO check_auditor USING (true);
		CREATE POLICY narrow ON agents.agent_idempotency_key AS RESTRICTIVE USING (true);
		DROP POLICY confirmexec_tenant ON agents.agent_idempotency_key`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = db.AdminPool(t).Exec(context.WithoutCancel(t.Context()), `DROP OWNED BY check_auditor; DROP ROLE check_auditor`)
	})
	assert.Empty(t, found(t, db.Pool(t), nil))
}

// S26: whatever of the schema has drifted is found, on a table of the library's own and on an upgraded one.
func TestCheckFindsDrift(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]*pgstore.Config{"own": nil, "upgraded": &upgraded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.NewEmpty(t)
			admin := db.AdminPool(t)
			if cfg != nil {
				_, err := admin.Exec(t.Context(), ownersTable)
				require.NoError(t, err)
			}
			require.NoError(t, pgstore.Migrate(t.Context(), admin, cfg))
			if cfg != nil {
				require.NoError(t, pgstore.EnableRowSecurity(t.Context(), admin, cfg))
			}
			grants, err := pgstore.GrantSQL(cfg, pgtest.AppRole)
			require.NoError(t, err)
			_, err = admin.Exec(t.Context(), grants)
			require.NoError(t, err)
			app := db.Pool(t)
			require.Empty(t, found(t, app, cfg))
			const table = `ALTER TABLE agents.agent_idempotency_key `
			for _, c := range []struct{ change, want string }{
				{`ALTER POLICY confirmexec_tenant ON agents.agent_idempotency_key USING (true) WITH CHECK (true)`,
					"the policy confirmexec_tenant does not tell tenants apart"},
				{`DROP POLICY confirmexec_tenant ON agents.agent_idempotency_key`, "missing or changed: policy confirmexec_tenant"},
				{`DROP INDEX agents.agent_idempotency_key_operation`, "index agent_idempotency_key_operation"},
				{table + `DROP CONSTRAINT confirmexec_shape`, "constraint confirmexec_shape"},
				{table + `ALTER COLUMN mode TYPE varchar`, "column mode"},
				{table + `ADD CONSTRAINT confirmexec_own CHECK (true)`, "constraint confirmexec_own"},
				{`TRUNCATE agents.agent_idempotency_key; ` + table + `ALTER COLUMN content SET NOT NULL`, "column content"},
				{`DROP INDEX agents.agent_idempotency_key_item; CREATE INDEX agent_idempotency_key_item
				   ON agents.agent_idempotency_key (request_id)`, "index agent_idempotency_key_item"},
				{`DROP INDEX agents.agent_idempotency_key_value`, "index agent_idempotency_key_value"},
				{table + `DROP COLUMN fence CASCADE`, "column fence"},
			} {
				tx := begin(t, admin, pgx.TxOptions{})
				_, err := tx.Exec(t.Context(), c.change)
				require.NoError(t, err, c.change)
				require.NoError(t, tx.Commit(t.Context()))
				assert.Contains(t, strings.Join(found(t, app, cfg), "\n"), c.want)
			}
		})
	}
}
