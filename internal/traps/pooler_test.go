package traps

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/pgstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// poolSize is fewer than the connections that the tests open, so that they share.
const poolSize = 3

// bouncer starts a PgBouncer in transaction mode in front of the database, and returns it as seen through it.
func bouncer(t *testing.T, db *pgtest.DB) *pgtest.DB {
	t.Helper()
	program := pgbouncer(t)
	dir := t.TempDir()
	app, admin := section(t, "app", db.AppDSN), section(t, "admin", db.AdminDSN)
	port := freePort(t)
	config := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `[databases]
%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 200
`, app, admin, port, poolSize), 0o600))
	args := []string{config}
	if os.Geteuid() == 0 { // it refuses to run as root
		args = []string{"-u", "nobody", config}
	}
	run(t, program, args, port)
	dsn := func(name string) string {
		return fmt.Sprintf("postgres://any@127.0.0.1:%d/%s?sslmode=disable", port, name)
	}
	return &pgtest.DB{AppDSN: dsn("app"), AdminDSN: dsn("admin")}
}

// pgbouncer finds the program, or skips the test.
func pgbouncer(t *testing.T) string {
	t.Helper()
	if program, err := exec.LookPath("pgbouncer"); err == nil {
		return program
	}
	const debian = "/usr/sbin/pgbouncer" // which is not on every user's PATH
	if _, err := os.Stat(debian); err != nil {
		t.Skip("SKIPPED: needs the program pgbouncer, and it is not on PATH (Debian and Ubuntu: apt-get install pgbouncer; macOS: brew install pgbouncer)")
	}
	return debian
}

// section is a database of the pooler's that logs in as the DSN does, whoever asks.
func section(t *testing.T, name, dsn string) string {
	t.Helper()
	c, err := pgconn.ParseConfig(dsn)
	require.NoError(t, err)
	s := fmt.Sprintf("%s = host=%s port=%d dbname=%s user=%s", name, c.Host, c.Port, c.Database, c.User)
	if c.Password != "" {
		s += " password='" + c.Password + "'"
	}
	return s + "\n"
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// run starts the program and waits until it listens.
func run(t *testing.T, program string, args []string, port int) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	require.Eventually(t, func() bool {
		select {
		case <-ended:
			t.Errorf("%s has ended: %s", program, log.String())
			return true
		default:
		}
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	if t.Failed() {
		t.FailNow()
	}
}

// S12, S27: incidents 66, 68 and 69: through a pooler in transaction mode, with fewer server connections than clients.
func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for name, safe := range map[string]bool{
		"cache describe": true, "exec": true, "describe exec": true, "simple protocol": true, "cache statement": false,
	} {
		t.Run("incident 69: 8 at once, "+name, func(t *testing.T) {
			t.Parallel()
			direct := pgtest.New(t)
			crowdOn(t, direct, bouncer(t, direct), name, safe)
		})
	}
	t.Run("incident 69: the suite", func(t *testing.T) {
		t.Parallel()
		direct := pgtest.New(t)
		admin := direct.AdminPool(t)
		pool := bouncer(t, direct).Pool(t, mode("cache describe"))
		storetest.Run(t, func(t *testing.T) storetest.Harness[pgx.Tx] { return emptied(t, admin, pool) })
	})
	t.Run("incident 66: migrating twice leaves no lock and no setting", func(t *testing.T) {
		t.Parallel()
		direct := pgtest.NewEmpty(t)
		through := bouncer(t, direct).AdminPool(t, mode("exec"))
		for range 2 {
			require.NoError(t, pgstore.Migrate(t.Context(), through, nil))
			assert.Zero(t, one[int](t, direct.AdminPool(t), `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
				WHERE l.locktype = 'advisory' AND d.datname = current_database()`))
		}
		assert.Empty(t, one[string](t, through, `SELECT coalesce(current_setting('confirmexec.made_table', true), '')`))
	})
	t.Run("incident 70: no tenant and no timeout stays on a server connection", func(t *testing.T) {
		t.Parallel()
		b := on(t, bouncer(t, pgtest.New(t)).Pool(t, mode("exec")))
		for range 2 * poolSize {
			_, err := b.confirm(b.propose("a"), insert)
			require.NoError(t, err)
			assert.Empty(t, one[string](t, b.pool, `SELECT coalesce(current_setting('app.firm_id', true), '')`))
			assert.Equal(t, "0", one[string](t, b.pool, `SHOW lock_timeout`))
			assert.Zero(t, one[int](t, b.pool, `SELECT count(*) FROM agents.agent_idempotency_key`))
		}
	})
}

func mode(name string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = modes[name] }
}

// crowdOn has 8 clients confirm 10 keys each, and each key twice. In a mode that a pooler cannot carry calls may fail with
// an error; but no answer is ever wrong and nothing runs twice.
func crowdOn(t *testing.T, direct, through *pgtest.DB, name string, safe bool) {
	t.Helper()
	plain := on(t, direct.Pool(t))
	b := on(t, through.Pool(t, mode(name), func(c *pgxpool.Config) { c.MaxConns = 8 }))
	var failed atomic.Int32
	var all sync.WaitGroup
	for client := range 8 {
		all.Go(func() {
			for n := range 10 {
				c := plain.propose(fmt.Sprintf("%s/%d/%d", name, client, n))
				for range 2 {
					failed.Add(confirmThrough(t, b, c, n%2 == 0))
				}
			}
		})
	}
	all.Wait()
	if safe {
		assert.Zero(t, failed.Load(), "every call is answered")
	} else {
		t.Logf("%d of 160 calls failed in the mode %q", failed.Load(), name)
	}
	assert.Zero(t, one[int](t, plain.pool, `SELECT count(*) FROM (SELECT FROM effect GROUP BY name HAVING count(*) > 1) AS twice`))
	for client := range 8 {
		for n := 0; n < 10 && safe; n += 2 {
			assert.Equal(t, 1, effects(t, plain.pool, fmt.Sprintf("%s/%d/%d", name, client, n)))
		}
	}
}

// confirmThrough confirms in a transaction or on its own, and returns 1 if that failed.
func confirmThrough(t *testing.T, b *bench, c contract.OperationConfirmation, inTx bool) int32 {
	if !inTx {
		_, err := b.Execute(t.Context(), request(c), func(_ context.Context, it broker.Item) (broker.Outcome, error) {
			return broker.Applied(it.ID), nil
		})
		return failure(t, err)
	}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		return 1
	}
	_, err = b.ExecuteTx(t.Context(), tx, txRequest(c), insert)
	if err != nil {
		_ = tx.Rollback(t.Context())
		return failure(t, err)
	}
	if tx.Commit(t.Context()) != nil {
		return 1
	}
	return 0
}

// failure is 1 for an error, which must not be a refusal of the key.
func failure(t *testing.T, err error) int32 {
	if err == nil {
		return 0
	}
	code, _ := contract.CodeOf(err)
	assert.Contains(t, []contract.FailureCode{contract.Unavailable, contract.AlreadyExists}, code, "%v", err)
	return 1
}
