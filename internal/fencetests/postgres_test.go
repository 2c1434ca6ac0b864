package fencetests

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/fencing/fencetest"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/internal/pgtest/claims"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

func TestMain(m *testing.M) { pgtest.Main(m, schema) }

// schema makes the claim table, and those of the plain implementation, for the plain application role.
var schema = claims.Schema(plainSchema + `GRANT SELECT, INSERT, UPDATE ON plain_office, plain_session, plain_token, plain_log TO {role}`)

func TestPostgres(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Harness[pgx.Tx] { return postgres(t, pgtest.New(t)) })
}

// postgres is the harness on a database, to which a restart connects anew.
func postgres(t *testing.T, db *pgtest.DB) fencetest.Harness[pgx.Tx] {
	t.Helper()
	pool, admin := db.Pool(t), db.AdminPool(t)
	st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: lockTimeout})
	require.NoError(t, err)
	return connected(db, pool, admin, st)
}

// connected is the harness on a store.
func connected(db *pgtest.DB, pool, admin *pgxpool.Pool, st store.Store[pgx.Tx]) fencetest.Harness[pgx.Tx] {
	h := fencetest.Of(st, firm)
	h.Snapshot = func(ctx context.Context) (string, error) { return dumpPostgres(ctx, admin) }
	h.Restart = func(t *testing.T) fencetest.Harness[pgx.Tx] {
		t.Helper()
		pool.Reset()
		return postgres(t, db)
	}
	return h
}

// dumpPostgres tells every row of the claim table but the log's, each with its version.
func dumpPostgres(ctx context.Context, admin *pgxpool.Pool) (string, error) {
	rows, err := admin.Query(ctx, `SELECT t::text || ' ' || xmin::text FROM agents.agent_idempotency_key t
    WHERE item_id IS DISTINCT FROM 'fencetest/log' ORDER BY boundary, request_id, item_id, attempt`)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}
