package faultnet

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
)

// passGate is a statement that waits in the server until the gate of its database opens.
const passGate = "SELECT pg_advisory_xact_lock(1)"

// gate holds back one connection's statement for as long as a test wants.
type gate struct {
	t       testing.TB
	admin   *pgx.Conn // holds the lock
	pid     uint32    // who is expected
	opening sync.WaitGroup
}

// closeGate closes the database's gate for the connection.
func closeGate(t *testing.T, db *pgtest.DB, expected *pgx.Conn) *gate {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), db.AdminDSN)
	require.NoError(t, err)
	g := &gate{t: t, admin: admin, pid: expected.PgConn().PID()}
	t.Cleanup(func() {
		g.opening.Wait()
		_ = admin.Close(context.Background())
	})
	g.exec("SELECT pg_advisory_lock(1)")
	return g
}

// awaitArrival waits until the statement stands before the gate.
func (g *gate) awaitArrival() {
	g.t.Helper()
	const waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)"
	require.Eventually(g.t, func() bool {
		var yes bool
		err := g.admin.QueryRow(context.Background(), waiting, g.pid).Scan(&yes)
		return err == nil && yes
	}, 20*time.Second, time.Millisecond)
}

// openSoon does not wait, so that the caller can be the one who waits for what follows.
func (g *gate) openSoon() {
	g.opening.Go(func() { g.exec("SELECT pg_advisory_unlock(1)") })
}

// terminate ends the expected connection's backend.
func (g *gate) terminate() { g.exec("SELECT pg_terminate_backend($1)", g.pid) }

func (g *gate) exec(sql string, args ...any) {
	g.t.Helper()
	_, err := g.admin.Exec(context.Background(), sql, args...)
	if err != nil {
		g.t.Errorf("%s: %v", sql, err)
	}
}
