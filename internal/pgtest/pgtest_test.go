package pgtest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// A machine without PostgreSQL fails here, once and with the ways out, instead of in every test that needs it.
// CONFIRMEXEC_NO_POSTGRES asks for a run without.
func TestPostgresIsAvailable(t *testing.T) {
	if isSet(envWithout) {
		const loud = "\n*** " + envWithout + " IS SET: EVERY TEST THAT NEEDS POSTGRESQL IS SKIPPED, NOTHING IS PROVEN ***\n"
		fmt.Fprint(os.Stderr, loud)
		t.Skip(loud)
	}
	if _, err := shared.get(); err != nil {
		t.Fatal(err)
	}
	var version string
	require.NoError(t, New(t).Pool(t).QueryRow(t.Context(), "SHOW server_version").Scan(&version))
	t.Logf("PostgreSQL %s, rung %s", version, shared.cluster.rung)
}

// Every test has the template's schema and nobody else's rows, and the template is built once.
func TestNewIsolatesTests(t *testing.T) {
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			pool := New(t).Pool(t)
			_, err := pool.Exec(t.Context(), "INSERT INTO note VALUES ('mine')")
			require.NoError(t, err)
			require.Equal(t, 1, count(t, pool, "SELECT count(*) FROM note"))
			require.EqualValues(t, 1, templateRuns.Load())
		})
	}
}

// A migration test begins before the first migration.
func TestNewEmptyHasNoSchema(t *testing.T) {
	t.Parallel()
	pool := NewEmpty(t).AdminPool(t)
	require.Zero(t, count(t, pool, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"))
}

// The application's role is as plain as in production: row security binds it, and it owns nothing.
func TestNewGivesPlainRole(t *testing.T) {
	t.Parallel()
	pool := New(t).Pool(t)
	require.Equal(t, 1, count(t, pool, `SELECT count(*) FROM pg_roles WHERE rolname = current_user
		AND current_user = session_user AND rolname = $1
		AND NOT (rolsuper OR rolbypassrls OR rolcreatedb OR rolcreaterole)`, AppRole))
	_, err := pool.Exec(t.Context(), "DROP TABLE note")
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "42501", refused.Code)
}

// A test's database goes when the test ends, even if something is still connected to it.
func TestNewDropsAtEnd(t *testing.T) {
	t.Parallel()
	pool := New(t).Pool(t)
	var name string
	var left *pgx.Conn
	t.Run("inner", func(t *testing.T) {
		db := New(t)
		conn, err := pgx.Connect(t.Context(), db.AppDSN)
		require.NoError(t, err)
		left, name = conn, conn.Config().Database
	})
	require.Error(t, left.Ping(t.Context()))
	require.Zero(t, count(t, pool, "SELECT count(*) FROM pg_database WHERE datname = $1", name))
}

// New works again after something has broken this package's own connection.
func TestNewSurvivesBrokenConnection(t *testing.T) {
	t.Parallel()
	pool := New(t).AdminPool(t)
	kill := "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE application_name = $1"
	shared.cluster.mu.Lock() // another test must not be in the middle of a statement
	killed := count(t, pool, kill, databasePrefix+shared.cluster.token)
	shared.cluster.mu.Unlock()
	require.Equal(t, 1, killed)
	New(t)
}

// Pool's changes reach the pool.
func TestPoolTakesChanges(t *testing.T) {
	t.Parallel()
	pool := New(t).Pool(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
	require.EqualValues(t, 1, pool.Config().MaxConns)
}

// A connection that a test never released fails it, and does not hang it.
func TestPoolReportsUnreleasedConnection(t *testing.T) {
	t.Parallel()
	pool := New(t).Pool(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	record := &recorder{TB: t}
	closePool(record, pool, 10*time.Millisecond)
	conn.Release()
	require.Contains(t, record.text, "1 connection(s) acquired")
}

// A package that forgot Main is told so: its server would never be stopped.
func TestNewNeedsMain(t *testing.T) {
	t.Parallel()
	_, err := new(process).get()
	require.ErrorIs(t, err, errNoMain)
}

// A leak check in a test that uses the package sees the test's own goroutines only.
func TestGoroutineCoversThePackage(t *testing.T) {
	pool := New(t).Pool(t)
	require.Equal(t, 1, count(t, pool, "SELECT 1"))
	pool.Close()
	goleak.VerifyNone(t, goleak.IgnoreAnyFunction(Goroutine))
}

// recorder takes the failures that a helper reports.
type recorder struct {
	testing.TB
	text string
}

func (r *recorder) Errorf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) }

func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}
