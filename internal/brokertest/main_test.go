package brokertest

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/internal/pgtest/claims"
	"github.com/confirmexec/confirmexec/internal/sqlitetest"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/pgstore"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(unmarked(func() int { return pgtest.Run(m, schema) })) }

// schema makes the claim table and a table for the executors' own effects, for the plain application role.
var schema = claims.Schema(`CREATE TABLE public.effect (name text NOT NULL);
		GRANT SELECT, INSERT ON public.effect TO {role}`)

const lockTimeout = 2 * time.Second

func TestMemory(t *testing.T) {
	run(t, func(*testing.T) storetest.Harness[*memstore.Tx] { return memory() })
}

// onMemory runs a test on a memory of its own.
func onMemory(t *testing.T, test func(storetest.Harness[*memstore.Tx])) {
	t.Helper()
	test(memory())
}

// memory is the harness on a memory whose clock only Advance moves.
func memory() storetest.Harness[*memstore.Tx] {
	var mu sync.Mutex
	now, effects := time.Now(), map[string]int{}
	st := memstore.New(&memstore.Config{LockTimeout: lockTimeout, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	add := func(name string, n int) {
		mu.Lock()
		defer mu.Unlock()
		effects[name] += n
	}
	return storetest.Harness[*memstore.Tx]{
		Store:    st,
		Begin:    st.BeginTx,
		Commit:   func(_ context.Context, tx *memstore.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *memstore.Tx) error { return tx.Rollback() },
		Effect: func(_ context.Context, tx *memstore.Tx, name string) error {
			add(name, 1)
			tx.OnRollback(func() { add(name, -1) })
			return nil
		},
		Count: func(_ context.Context, name string) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return effects[name], nil
		},
		Advance: func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(d)
		},
	}
}

func TestSQLite(t *testing.T) { run(t, sqlite) }

// sqlite is the harness on a file of its own.
func sqlite(t *testing.T) storetest.Harness[*sql.Tx] {
	t.Helper()
	st, err := sqlitestore.Open(t.Context(), t.TempDir()+"/confirm.db", &sqlitestore.Config{LockTimeout: lockTimeout})
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return sqlitetest.Harness(t, st)
}

func TestPostgres(t *testing.T) {
	run(t, func(t *testing.T) storetest.Harness[pgx.Tx] { return postgres(t, pgtest.New(t).Pool(t)) })
}

// postgres is the harness on one pool of the plain role.
func postgres(t *testing.T, pool *pgxpool.Pool) storetest.Harness[pgx.Tx] {
	t.Helper()
	st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: lockTimeout})
	require.NoError(t, err)
	return storetest.Harness[pgx.Tx]{
		Store:    st,
		Begin:    pool.Begin,
		Commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		Effect: func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, `INSERT INTO effect (name) VALUES ($1)`, name)
			return err
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			return n, pool.QueryRow(ctx, `SELECT count(*) FROM effect WHERE name = $1`, name).Scan(&n)
		},
		Advance: time.Sleep,
	}
}
