package sqlitestore_test

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

// hangUp is what the SQL function hang_up calls.
var hangUp atomic.Pointer[context.CancelFunc]

func init() {
	sqlite.MustRegisterScalarFunction("hang_up", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		(*hangUp.Load())()
		return nil, nil
	})
}

// hangingUp is a store in which every claim cancels the context that is returned, half way.
func hangingUp(t *testing.T) (*sqlitestore.Store, context.Context) {
	t.Helper()
	s := withTable(t, time.Second)
	_, err := s.DB().ExecContext(t.Context(), `CREATE TRIGGER hang_up BEFORE INSERT ON agent_idempotency_key
		WHEN NEW.boundary = 'operation' BEGIN SELECT hang_up(); END`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	hangUp.Store(&cancel)
	return s, ctx
}

// S12: a client that hangs up half way loses no claim.
func TestACancelDoesNotInterruptAWrite(t *testing.T) {
	s, ctx := hangingUp(t)
	p := unminted()
	p.FirstItem = "i1"
	standing, err := s.Own().Claim(ctx, p)
	require.NoError(t, err)
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.Equal(t, p.Attempt, standing.Claim.Attempt)
	after, err := s.Own().Lookup(t.Context(), store.LookupParams{ID: p.ID})
	require.NoError(t, err)
	require.Equal(t, standing, after)
}

// S28a: SQLite would roll the caller's whole transaction back.
func TestACancelDoesNotBreakTheCallersTransaction(t *testing.T) {
	s, ctx := hangingUp(t)
	tx := begin(t, s)
	_, err := tx.ExecContext(t.Context(), `INSERT INTO effect VALUES ('before')`)
	require.NoError(t, err)
	_, err = s.In(tx).Claim(ctx, unminted())
	require.NoError(t, err)
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	_, err = s.In(tx).Lookup(ctx, store.LookupParams{ID: unminted().ID})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, tx.Commit())
	require.Equal(t, 1, count(t, s, "effect"))
	require.Equal(t, 1, count(t, s, "agent_idempotency_key"))
}
