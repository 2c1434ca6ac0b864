package brokertest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// spied is a store between whose calls and the broker a test stands. A function that is nil lets the call pass.
type spied[TTx any] struct {
	store.Store[TTx]
	claim    func(ctx context.Context, p store.ClaimParams, pass func() (store.Standing, error)) (store.Standing, error)
	lookup   func(p store.LookupParams, pass func() (store.Standing, error)) (store.Standing, error)
	progress func(pass func() error) error
	complete func(p store.CompleteParams, pass func() error) error
	begin    func()
	commit   func(tx TTx, c store.Closing, pass func() error) error
}

// spy puts a spied store into h.
func spy[TTx any](h *storetest.Harness[TTx]) *spied[TTx] {
	s := &spied[TTx]{Store: h.Store}
	h.Store = s
	return s
}

func (s *spied[TTx]) Own() store.Claims { return spiedClaims[TTx]{s.Store.Own(), s} }

func (s *spied[TTx]) Begin(ctx context.Context, o store.Opening) (TTx, store.Standing, error) {
	if s.begin != nil {
		s.begin()
	}
	return s.Store.Begin(ctx, o)
}

func (s *spied[TTx]) Commit(ctx context.Context, tx TTx, c store.Closing) error {
	if s.commit == nil {
		return s.Store.Commit(ctx, tx, c)
	}
	return s.commit(tx, c, func() error { return s.Store.Commit(context.WithoutCancel(ctx), tx, c) })
}

type spiedClaims[TTx any] struct {
	store.Claims
	s *spied[TTx]
}

func (c spiedClaims[TTx]) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	pass := func() (store.Standing, error) { return c.Claims.Claim(ctx, p) }
	if c.s.claim == nil {
		return pass()
	}
	return c.s.claim(ctx, p, pass)
}

func (c spiedClaims[TTx]) Lookup(ctx context.Context, p store.LookupParams) (store.Standing, error) {
	pass := func() (store.Standing, error) { return c.Claims.Lookup(ctx, p) }
	if c.s.lookup == nil {
		return pass()
	}
	return c.s.lookup(p, pass)
}

func (c spiedClaims[TTx]) Progress(ctx context.Context, p store.ProgressParams) error {
	pass := func() error { return c.Claims.Progress(ctx, p) }
	if c.s.progress == nil {
		return pass()
	}
	return c.s.progress(pass)
}

func (c spiedClaims[TTx]) Complete(ctx context.Context, p store.CompleteParams) error {
	pass := func() error { return c.Claims.Complete(ctx, p) }
	if c.s.complete == nil {
		return pass()
	}
	return c.s.complete(p, pass)
}

// counting counts the broker's uses of h's store from now on.
func counting[TTx any](h *storetest.Harness[TTx]) *atomic.Int32 {
	c := &countedStore[TTx]{Store: h.Store}
	h.Store = c
	return &c.uses
}

type countedStore[TTx any] struct {
	store.Store[TTx]
	uses atomic.Int32
}

func (c *countedStore[TTx]) Own() store.Claims {
	c.uses.Add(1)
	return c.Store.Own()
}

func (c *countedStore[TTx]) In(tx TTx) store.Claims {
	c.uses.Add(1)
	return c.Store.In(tx)
}

func (c *countedStore[TTx]) Values(tx TTx) store.Values {
	c.uses.Add(1)
	return c.Store.Values(tx)
}

func (c *countedStore[TTx]) Keep() store.Keeper {
	c.uses.Add(1)
	return c.Store.Keep()
}

func (c *countedStore[TTx]) Begin(ctx context.Context, o store.Opening) (TTx, store.Standing, error) {
	c.uses.Add(1)
	return c.Store.Begin(ctx, o)
}

func (c *countedStore[TTx]) Isolate(ctx context.Context, tx TTx, n int, fn func(int, TTx) error) ([]error, error) {
	c.uses.Add(1)
	return c.Store.Isolate(ctx, tx, n, fn)
}

// patience bounds every wait for an event in these tests; none of them takes that long.
const patience = 2 * time.Minute

// until returns when cond holds.
func until(t testing.TB, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// within is what ch receives.
func within[T any](t testing.TB, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatal("it did not happen")
	}
	return v
}

// answer is what a confirm that runs aside was told.
type answer struct {
	res *contract.OperationResult
	err error
}

func (a answer) String() string { return broker.AnswerOf(a.res, a.err) }

// aside confirms in a goroutine of its own.
func (b *bench[TTx]) aside(req broker.Request, exec executor) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		res, err := b.confirm(req, exec)
		done <- answer{res, err}
	}()
	return done
}

// waiting is the harness on a pool of the plain role whose store waits so long for locks.
func waiting(t *testing.T, pool *pgxpool.Pool, lockTimeout time.Duration) storetest.Harness[pgx.Tx] {
	t.Helper()
	h := postgres(t, pool)
	st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: lockTimeout})
	require.NoError(t, err)
	h.Store = st
	return h
}

// blocked says whether a connection of this database waits for another's lock.
func blocked(t testing.TB, pool *pgxpool.Pool) bool {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), `SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN
		(SELECT pid FROM pg_stat_activity WHERE datname = current_database())`).Scan(&n))
	return n > 0
}

// lockTable locks the claim table against others, until the function that it returns is called.
func lockTable(t *testing.T, db *pgtest.DB, mode string) (tx pgx.Tx, unlock func()) {
	t.Helper()
	tx, err := db.AdminPool(t).Begin(t.Context())
	require.NoError(t, err)
	unlock = func() { _ = tx.Rollback(context.Background()) }
	t.Cleanup(unlock)
	_, err = tx.Exec(t.Context(), `LOCK TABLE agents.agent_idempotency_key IN `+mode+` MODE`)
	require.NoError(t, err)
	return tx, unlock
}

// sqlState raises an SQL error of that code.
func sqlState(code string) string { return `DO $$ BEGIN RAISE SQLSTATE '` + code + `'; END $$` }
