package memstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// S12, S16, S20, S28a: the claims of a store in memory.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness[*memstore.Tx] { return newHarness() })
}

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// ledger is what the executors of a test write to.
type ledger struct {
	mu   sync.Mutex
	rows map[string]int
}

func (l *ledger) add(name string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows[name] += n
}

func (l *ledger) count(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rows[name]
}

func newHarness() storetest.Harness[*memstore.Tx] {
	c := &clock{now: time.Now()}
	l := &ledger{rows: map[string]int{}}
	s := memstore.New(&memstore.Config{Now: c.Now, LockTimeout: time.Second})
	return storetest.Harness[*memstore.Tx]{
		Store:    s,
		Begin:    s.BeginTx,
		Commit:   func(_ context.Context, tx *memstore.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *memstore.Tx) error { return tx.Rollback() },
		Effect: func(_ context.Context, tx *memstore.Tx, name string) error {
			l.add(name, 1)
			tx.OnRollback(func() { l.add(name, -1) })
			return nil
		},
		Count:   func(_ context.Context, name string) (int, error) { return l.count(name), nil },
		Advance: c.Advance,
	}
}

func TestBeginWaitsForTheOpenTransaction(t *testing.T) {
	s := memstore.New(&memstore.Config{LockTimeout: time.Millisecond})
	tx, err := s.BeginTx(t.Context())
	require.NoError(t, err)

	_, err = s.BeginTx(t.Context())
	require.ErrorIs(t, err, store.ErrBusy)
	_, err = s.Own().Claim(t.Context(), store.ClaimParams{AcceptUnminted: true})
	require.ErrorIs(t, err, store.ErrBusy)

	require.NoError(t, tx.Rollback())
	tx, err = s.BeginTx(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

func TestBeginEndsWithItsContext(t *testing.T) {
	s := memstore.New(nil)
	_, err := s.BeginTx(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = s.BeginTx(ctx)
	require.ErrorIs(t, err, store.ErrBusy)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestTxEndsOnce(t *testing.T) {
	s := memstore.New(nil)
	tx, err := s.BeginTx(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, tx.Commit(), store.ErrTxEnded)
	require.ErrorIs(t, tx.Rollback(), store.ErrTxEnded)
	_, err = s.In(tx).Lookup(t.Context(), store.LookupParams{ID: store.ID{Key: uuid.New()}})
	require.ErrorIs(t, err, store.ErrTxEnded)
}

func TestIsolateLendsATxThatCannotBeEnded(t *testing.T) {
	s := memstore.New(nil)
	tx, err := s.BeginTx(t.Context())
	require.NoError(t, err)
	_, err = s.Isolate(t.Context(), tx, 1, func(_ int, lent *memstore.Tx) error {
		require.Error(t, lent.Commit())
		require.Error(t, lent.Rollback())
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

func TestIsolateNoticesAnEndThroughTheOwnersHandle(t *testing.T) {
	s := memstore.New(nil)
	tx, err := s.BeginTx(t.Context())
	require.NoError(t, err)
	_, err = s.Isolate(t.Context(), tx, 2, func(int, *memstore.Tx) error { return tx.Rollback() })
	require.ErrorIs(t, err, store.ErrTxEnded)
}

func TestOnRollbackRunsTheLastFirst(t *testing.T) {
	s := memstore.New(nil)
	tx, err := s.BeginTx(t.Context())
	require.NoError(t, err)
	var undone []string
	undo := func(name string) func() { return func() { undone = append(undone, name) } }
	tx.OnRollback(undo("outer"))
	_, err = s.Isolate(t.Context(), tx, 2, func(i int, lent *memstore.Tx) error {
		if i == 0 {
			lent.OnRollback(undo("kept"))
			return nil
		}
		lent.OnRollback(undo("first of item"))
		lent.OnRollback(undo("last of item"))
		return errors.New("broken")
	})
	require.NoError(t, err)
	require.Equal(t, []string{"last of item", "first of item"}, undone)
	undone = nil
	require.NoError(t, tx.Rollback())
	require.Equal(t, []string{"kept", "outer"}, undone)
}

// What the store made is ended by the store, what the caller began by the caller, and what was lent by nobody.
func TestWhoEndsATransaction(t *testing.T) {
	s := memstore.New(nil)
	made, _, err := s.Begin(t.Context(), store.Opening{})
	require.NoError(t, err)
	require.Error(t, made.Commit())
	require.Error(t, made.Rollback())
	_, err = s.Isolate(t.Context(), made, 1, func(_ int, lent *memstore.Tx) error {
		require.Error(t, s.Commit(t.Context(), lent, store.Closing{}))
		require.Error(t, s.Rollback(t.Context(), lent))
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, s.Rollback(t.Context(), made))
	require.ErrorIs(t, s.Rollback(t.Context(), made), store.ErrTxEnded)
	require.ErrorIs(t, s.Commit(t.Context(), made, store.Closing{}), store.ErrTxEnded)

	begun, err := s.BeginTx(t.Context())
	require.NoError(t, err)
	require.Error(t, s.Commit(t.Context(), begun, store.Closing{}))
	require.Error(t, s.Rollback(t.Context(), begun))
	require.NoError(t, begun.Commit())
}

func TestCommitThatIsRefusedUndoesTheEffect(t *testing.T) {
	s := memstore.New(nil)
	tx, _, err := s.Begin(t.Context(), store.Opening{})
	require.NoError(t, err)
	undone := false
	tx.OnRollback(func() { undone = true })
	err = s.Commit(t.Context(), tx, store.Closing{Complete: &store.CompleteParams{}})
	require.ErrorIs(t, err, store.ErrNotCommitted)
	require.ErrorIs(t, err, store.ErrFenced)
	require.True(t, undone)
}
