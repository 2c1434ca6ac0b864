package pgstore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// S18, S24: from an empty database, by several processes at once, repeatedly, also under other names.
func TestMigrate(t *testing.T) {
	t.Parallel()
	db := pgtest.NewEmpty(t)
	admin, app := db.AdminPool(t), db.Pool(t)
	for _, cfg := range []*pgstore.Config{nil, {Schema: "select", Table: "order", TenantColumn: "user", TenantSetting: "acme.tenant"}} {
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { errs[i] = pgstore.Migrate(t.Context(), admin, cfg) })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, pgstore.Migrate(t.Context(), admin, cfg))

		grants, err := pgstore.GrantSQL(cfg, "confirmexec_app")
		require.NoError(t, err)
		_, err = admin.Exec(t.Context(), grants)
		require.NoError(t, err)
		st := pgstore.New(app)
		if cfg != nil {
			st, err = pgstore.NewWithConfig(app, *cfg)
			require.NoError(t, err)
		}
		id := proposed(t, st, "firm-a")
		s, err := st.Own().Claim(t.Context(), claimOf(id))
		require.NoError(t, err)
		require.NotNil(t, s.Claim)
	}
}

// S24, S25: the schema itself refuses rows that no boundary may have, and a second claim of a key.
func TestSchemaRefusesIllegalRows(t *testing.T) {
	t.Parallel()
	admin := pgtest.New(t).AdminPool(t)
	const (
		operation = `(firm_id, boundary, request_id, digest, attempt, fence, mode, claimed_at, lease_until)
			VALUES ('f', 'operation', 'k', decode(repeat('00', 32), 'hex'), gen_random_uuid(), 1, 'atomic', now(), now())`
		proposal = `(firm_id, boundary, request_id, digest, claimed_at, expires_at, completed_at)
			VALUES ('f', 'proposal', 'k', decode(repeat('00', 32), 'hex'), now(), now(), now())`
		value = `(firm_id, boundary, item_id, fence, claimed_at, content) VALUES ('f', 'value', 'n', 1, now(), '')`
		item  = `(firm_id, boundary, request_id, item_id, attempt, fence, claimed_at) VALUES ('f', 'item', 'k', 'i', gen_random_uuid(), 1, now())`
	)
	insert := func(row string) string {
		_, err := admin.Exec(t.Context(), `INSERT INTO agents.agent_idempotency_key `+row)
		pe, _ := errors.AsType[*pgconn.PgError](err)
		if pe == nil {
			require.NoError(t, err)
			return ""
		}
		return pe.Code + " " + pe.ConstraintName
	}
	for _, row := range []string{operation, proposal, item, value} {
		assert.Empty(t, insert(row), "the good row: %s", row)
	}
	assert.Equal(t, "23505 agent_idempotency_key_operation", insert(operation), "the backstop of exactly once")
	assert.Equal(t, "23505 agent_idempotency_key_proposal", insert(proposal))
	assert.Equal(t, "23505 agent_idempotency_key_item", insert(item))
	assert.Equal(t, "23505 agent_idempotency_key_value", insert(value))
	const shape, boundary = "23514 confirmexec_shape", "23514 confirmexec_boundary"
	for row, want := range map[string]string{
		strings.Replace(operation, "'operation'", "'unheard-of'", 1):             boundary,
		strings.Replace(operation, "decode(repeat('00', 32), 'hex')", "NULL", 1): shape,
		strings.Replace(operation, "32", "31", 1):                                shape,
		strings.Replace(operation, "'k'", "NULL", 1):                             shape,
		strings.Replace(operation, "gen_random_uuid()", "NULL", 1):               shape,
		strings.Replace(operation, ", 1, 'atomic'", ", 0, 'atomic'", 1):          shape,
		strings.Replace(operation, "now())", "NULL)", 1):                         shape,
		strings.Replace(proposal, "now(), now())", "NULL, now())", 1):            shape,
		strings.Replace(item, "'i'", "NULL", 1):                                  shape,
		strings.Replace(value, "'n', 1", "NULL, 1", 1):                           shape,
		strings.Replace(value, "'n', 1", "'n', 0", 1):                            shape,
		strings.Replace(value, "'n', 1", "'n', NULL", 1):                         shape,
		strings.Replace(value, "now()", "NULL", 1):                               shape,
		strings.Replace(value, "'')", "NULL)", 1):                                shape,
	} {
		assert.Equal(t, want, insert(row), "%s", row)
	}
	for column, filled := range map[string]string{
		"request_id": "'k'", "step": "'x'", "tool": "'x'", "sha": "'x'", "digest": "''", "attempt": "gen_random_uuid()", "mode": "'x'",
		"lease_until": "now()", "expires_at": "now()", "completed_at": "now()", "outcomes": "''", "unsettled": "false",
	} {
		row := strings.Replace(strings.Replace(value, "item_id,", "item_id, "+column+",", 1), "'n',", "'n', "+filled+",", 1)
		assert.Equal(t, shape, insert(row), column)
	}
	for _, column := range []string{"step", "tool", "sha"} {
		row := strings.Replace(strings.Replace(operation, "mode,", "mode, "+column+",", 1), "'atomic',", "'atomic', 'x',", 1)
		assert.Equal(t, shape, insert(row), column)
	}
}

// S24: no name reaches SQL that is not on the allow-list.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{`a"b`, "a;drop table x", "A", "ä", "a b", "1a", "a\x00b", "a.b", strings.Repeat("a", 64), `"`, "a'b"} {
		for field, cfg := range map[string]pgstore.Config{
			"Schema": {Schema: name}, "Table": {Table: name}, "TenantColumn": {TenantColumn: name}, "TenantSetting": {TenantSetting: "x." + name},
		} {
			_, err := pgstore.NewWithConfig(nil, cfg)
			var invalid *contract.InvalidError
			require.ErrorAs(t, err, &invalid, "%s %q", field, name)
			assert.Contains(t, invalid.Path, field)
			require.ErrorAs(t, pgstore.Migrate(t.Context(), nil, &cfg), &invalid)
			_, err = pgstore.GrantSQL(&cfg, "role")
			require.ErrorAs(t, err, &invalid)
		}
	}
	_, err := pgstore.NewWithConfig(nil, pgstore.Config{Table: strings.Repeat("a", 41)})
	require.Error(t, err, "index names would be cut")
	sql, err := pgstore.GrantSQL(nil, `ro"le`)
	require.NoError(t, err)
	assert.Contains(t, sql, `TO "ro""le";`)
}

// S25: the plans of the statements use the partial unique indexes, also as generic plans, so that the cost of a key does not
// grow with the table.
func TestPlansUseIndexes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin, app := db.AdminPool(t), db.Pool(t)
	_, err := admin.Exec(t.Context(), `INSERT INTO agents.agent_idempotency_key
		(firm_id, boundary, request_id, digest, claimed_at, expires_at, completed_at)
		SELECT 'firm-' || n % 10, 'proposal', gen_random_uuid(), decode(repeat('00', 32), 'hex'), now(), now(), now() FROM generate_series(1, 20000) n`)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), `VACUUM ANALYZE agents.agent_idempotency_key`)
	require.NoError(t, err)
	before := seqScans(t, db)
	st := pgstore.New(app)
	for revision := range int64(10) { // a plan turns generic at the sixth call on a connection
		moved(t, st, "firm-a", revision)
		guarded := claimOf(proposed(t, st, "firm-a"))
		guarded.Guards = []store.Guard{{Name: epoch, Revision: revision + 1}}
		s, err := st.Own().Claim(t.Context(), guarded)
		require.NoError(t, err)
		require.NotNil(t, s.Claim)
		id := proposed(t, st, "firm-a")
		_, err = st.Own().Claim(t.Context(), claimOf(id))
		require.NoError(t, err)
		_, err = st.Own().Lookup(t.Context(), store.LookupParams{ID: id, Barrier: true})
		require.NoError(t, err)
		_, err = st.Own().Lookup(t.Context(), store.LookupParams{ID: store.ID{Tenant: "firm-1", Key: uuid.New()}, Barrier: true})
		require.NoError(t, err)
	}
	app.Close() // so that its counters are flushed
	assert.Equal(t, before, seqScans(t, db), "no statement may read the whole table")
}

func seqScans(t *testing.T, db *pgtest.DB) (n int) {
	t.Helper()
	require.NoError(t, db.AdminPool(t).QueryRow(t.Context(), `SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'agent_idempotency_key'`).Scan(&n))
	return n
}
