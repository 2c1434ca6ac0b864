package pgstore_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/internal/pgtest/claims"
	"github.com/confirmexec/confirmexec/store/pgstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// TestMain is also the main of the processes that migrate.
func TestMain(m *testing.M) {
	if dsn := os.Getenv(migrateVariable); dsn != "" {
		os.Exit(migrateAsked(dsn))
	}
	pgtest.Main(m, schema)
}

// schema makes the claim table and a table for effects of the tests' own.
var schema = claims.Schema(`CREATE TABLE public.effect (name text NOT NULL);
		GRANT SELECT, INSERT ON public.effect TO {role}`)

// pool connects as the plain role in a query mode.
func pool(t *testing.T, db *pgtest.DB, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.AppDSN)
	require.NoError(t, err)
	cfg.ConnConfig.DefaultQueryExecMode = mode
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func harness(t *testing.T, p *pgxpool.Pool) storetest.Harness[pgx.Tx] {
	t.Helper()
	st, err := pgstore.NewWithConfig(p, pgstore.Config{LockTimeout: time.Second})
	require.NoError(t, err)
	return storetest.Harness[pgx.Tx]{
		Store:    st,
		Begin:    p.Begin,
		Commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		Effect: func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, `INSERT INTO effect (name) VALUES ($1)`, name)
			return err
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			return n, p.QueryRow(ctx, `SELECT count(*) FROM effect WHERE name = $1`, name).Scan(&n)
		},
		Advance: time.Sleep,
	}
}

// S27: the whole suite passes as the application role under forced row-level security, in every query mode of pgx that a
// service can be behind (a transaction pooler allows only the later ones).
func TestConformance(t *testing.T) {
	for name, mode := range map[string]pgx.QueryExecMode{
		"cache statement": pgx.QueryExecModeCacheStatement,
		"cache describe":  pgx.QueryExecModeCacheDescribe,
		"describe exec":   pgx.QueryExecModeDescribeExec,
		"exec":            pgx.QueryExecModeExec,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			admin, app := db.AdminPool(t), pool(t, db, mode)
			storetest.Run(t, func(t *testing.T) storetest.Harness[pgx.Tx] {
				_, err := admin.Exec(t.Context(), `SET lock_timeout = '10s'; DELETE FROM agents.agent_idempotency_key; DELETE FROM effect`)
				require.NoError(t, err)
				return harness(t, app)
			})
		})
	}
}

// R118: values and guards keep their promises by row locks alone: advisory locks only keep the waits fair.
func TestConformanceWithoutTurns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin, app := db.AdminPool(t), db.Pool(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness[pgx.Tx] {
		_, err := admin.Exec(t.Context(), `SET lock_timeout = '10s'; DELETE FROM agents.agent_idempotency_key; DELETE FROM effect`)
		require.NoError(t, err)
		h := harness(t, app)
		st, ok := h.Store.(*pgstore.Store)
		require.True(t, ok)
		h.Store = pgstore.WithoutTurns(st)
		return h
	})
}
