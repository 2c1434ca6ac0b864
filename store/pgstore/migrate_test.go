package pgstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// migrations are the names under which tables are made here.
var migrations = []*pgstore.Config{nil, {Schema: "select", Table: "order", TenantColumn: "user", TenantSetting: "acme.tenant"}}

// S18, S24: from an empty database, by several processes at once, repeatedly, also under other names.
func TestMigrate(t *testing.T) {
	t.Parallel()
	db := pgtest.NewEmpty(t)
	admin, app := db.AdminPool(t), db.Pool(t)
	var processes [3]*migrator
	for i := range processes {
		processes[i] = startMigrator(t, db.AdminDSN)
	}
	for i, cfg := range migrations {
		for _, p := range processes {
			p.ask(t, i)
		}
		for _, p := range processes {
			require.Equal(t, "migrated\n", p.line(t))
		}
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

// migrateVariable is the environment variable that makes a process of this package's tests a migrator, with the database's address.
const migrateVariable = "PGSTORE_TEST_MIGRATE"

// migrator is a process that makes, for each number on its standard input, the table of that configuration.
type migrator struct {
	in  io.Writer
	out *bufio.Reader
}

// startMigrator returns when the process is connected.
func startMigrator(t *testing.T, dsn string) *migrator {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]) // it ends by itself
	cmd.Env = append(os.Environ(), migrateVariable+"="+dsn)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		assert.NoError(t, cmd.Wait())
	})
	m := &migrator{in, bufio.NewReader(out)}
	require.Equal(t, "connected\n", m.line(t))
	return m
}

func (m *migrator) ask(t *testing.T, number int) {
	t.Helper()
	_, err := fmt.Fprintln(m.in, number)
	require.NoError(t, err)
}

func (m *migrator) line(t *testing.T) string {
	t.Helper()
	line, err := m.out.ReadString('\n')
	require.NoError(t, err)
	return line
}

// migrateAsked is the process's main.
func migrateAsked(dsn string) int {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err == nil {
		err = pool.Ping(ctx)
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	defer pool.Close()
	fmt.Println("connected")
	for {
		var number int
		if _, err := fmt.Scanln(&number); err != nil {
			return 0 // it is not asked for any more
		}
		if err := pgstore.Migrate(ctx, pool, migrations[number]); err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Println("migrated")
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
