// Package pgtest gives each test a PostgreSQL database of its own.
//
// A package's TestMain calls [Main]; its tests call [New]:
//
//	func TestMain(m *testing.M) { pgtest.Main(m, migrate) }
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.New(t).Pool(t) // the plain application role, as in production
//		...
//	}
//
// One server serves the test process. It is started by the first New and is gone when Main returns, however the process
// ends. New clones a template database that the [Template] hook has built once.
//
// # Where the server comes from
//
// The first of these rungs that is available is used. CONFIRMEXEC_TEST_RUNGS, a list such as "local,docker", allows
// only the rungs that it names.
//
//  1. dsn: CONFIRMEXEC_TEST_DSN names a running server, and a role there that may create databases and roles. The
//     databases are dropped afterwards; the role [AppRole] stays. Its settings (fsync and so on) are its owner's.
//  2. local: PostgreSQL's server programs on this machine start a throw-away server on 127.0.0.1. They are looked for
//     in CONFIRMEXEC_PG_BIN, then PATH, pg_config --bindir, and the usual folders of Linux and macOS, newest version
//     first. This way works as root too (the server then runs as "nobody"). It does not exist on Windows.
//  3. docker: a container of the official image, or of CONFIRMEXEC_PG_IMAGE, if a Docker engine answers.
//  4. embedded: PostgreSQL's programs are downloaded, once per user, or by root for each test process, since the
//     server does not run as root.
//
// Rungs 3 and 4 are programs of their own, internal/pgcontainer and internal/pgembedded, which the go command builds:
// nothing that they import becomes a dependency of a package that is tested with this one.
//
// A server that cannot be found skips the tests that need it, and fails one: TestPostgresIsAvailable in this package,
// which says what each rung lacks and names the ways out. CONFIRMEXEC_NO_POSTGRES=1 asks for a run without PostgreSQL:
// nothing is looked for, and that one test is skipped too. Under CI (the environment variable) nothing is skipped
// unless CONFIRMEXEC_NO_POSTGRES asks for it. A server that was found, or was pointed at, and does not work fails every
// test that needs it, and so do rungs that CONFIRMEXEC_TEST_RUNGS names and that are not available.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// AppRole is the plain role that [DB.AppDSN] and [DB.Pool] log in as: no superuser, no BYPASSRLS, owner of nothing.
const AppRole = "confirmexec_app"

// Goroutine is the function that all goroutines of this package run in until Main ends. A test that looks for leaked
// goroutines leaves them out: goleak.VerifyNone(t, goleak.IgnoreAnyFunction(pgtest.Goroutine)).
const Goroutine = "github.com/confirmexec/confirmexec/internal/pgtest.background"

// opTimeout bounds every step here. It is long because the machine may be busy with other test processes.
const opTimeout = 2 * time.Minute

// poolCloseTimeout is how long a pool may wait at the end of a test for connections that the test has not released.
const poolCloseTimeout = 10 * time.Second

// Template fills the database that [New] clones: it connects to adminDSN, creates the schema, grants appRole what the
// application needs, and closes its connections. It runs once per process, at the first New. What is not inside the
// database itself is not cloned: ALTER DATABASE ... SET has no effect on the clones.
type Template func(ctx context.Context, adminDSN, appRole string) error

// DB is one test's own database. It is dropped when the test ends, with whatever is still connected to it.
type DB struct {
	// AdminDSN connects as the owner: a superuser on a throw-away server.
	AdminDSN string
	// AppDSN connects as AppRole.
	AppDSN string
}

// Main runs the package's tests, stops the server, removes its files, and exits the process with the tests' code.
// A nil template leaves the databases of [New] empty.
func Main(m *testing.M, template Template) {
	os.Exit(Run(m, template))
}

// Run is Main without the exit, for a TestMain that has more to check after the tests.
func Run(m *testing.M, template Template) int {
	shared.begin(template)
	release := onInterrupt(func(s syscall.Signal) {
		_ = shared.end()
		os.Exit(128 + int(s))
	})
	defer release()
	code := m.Run()
	if err := shared.end(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: after the tests:", err)
		code = max(code, 1)
	}
	return code
}

// New gives the test a database of its own, cloned from the template. Without a server the test is skipped or fails,
// as the package comment says. Tests may call it in parallel.
func New(t testing.TB) *DB {
	t.Helper()
	return create(t, (*cluster).clone)
}

// NewEmpty is New for a database without the template's schema: the state before the first migration.
func NewEmpty(t testing.TB) *DB {
	t.Helper()
	return create(t, (*cluster).empty)
}

// Pool opens a pool as AppRole and closes it when the test ends. A connection that the test has not released by then
// fails the test. Each change is made to the pool's configuration before it opens.
func (db *DB) Pool(t testing.TB, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return openPool(t, db.AppDSN, changes)
}

// AdminPool is Pool as the database's owner.
func (db *DB) AdminPool(t testing.TB, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return openPool(t, db.AdminDSN, changes)
}

// create makes a database and registers its drop before anything that the test registers later.
func create(t testing.TB, create func(*cluster, context.Context) (string, error)) *DB {
	t.Helper()
	c, err := shared.get()
	if err != nil {
		refuse(t, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	name, err := create(c, ctx)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := c.drop(name); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return c.database(name)
}

// refuse ends a test that cannot have a server.
func refuse(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, errWithout):
		t.Skipf("SKIPPED: needs PostgreSQL, and %v", err)
	case errors.Is(err, errAbsent) && !isSet("CI"):
		t.Skipf("SKIPPED: needs PostgreSQL, and none was found. TestPostgresIsAvailable in internal/pgtest fails " +
			"for that reason and names the ways out: go test ./internal/pgtest -run TestPostgresIsAvailable")
	default:
		t.Fatalf("pgtest: %v", err)
	}
}

func openPool(t testing.TB, dsn string, changes []func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for _, change := range changes {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool, poolCloseTimeout) })
	return pool
}

// closePool bounds pgxpool's Close, which waits for ever for a connection that nobody releases.
func closePool(t testing.TB, pool *pgxpool.Pool, limit time.Duration) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(limit):
		t.Errorf("pgtest: the test ends with %d connection(s) acquired from its pool and never released",
			pool.Stat().AcquiredConns())
	}
}

// onInterrupt calls stop when the process is asked to end, until release is called. The server does not see the
// terminal's Ctrl-C, since it has a process group of its own.
func onInterrupt(stop func(syscall.Signal)) (release func()) {
	signals := make(chan os.Signal, 1)
	released := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go background(func() {
		select {
		case s := <-signals:
			number, _ := s.(syscall.Signal)
			stop(number)
		case <-released:
		}
	})
	return func() {
		signal.Stop(signals)
		close(released)
	}
}

// background runs what lives as long as Main. It has a name so that Goroutine can name it.
func background(run func()) {
	run()
}

// isSet reports whether an on/off environment variable is on.
func isSet(name string) bool {
	value := os.Getenv(name)
	return value != "" && value != "0" && value != "false"
}
