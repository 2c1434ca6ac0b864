package brokertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/faultnet"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// S14: a store that is away for some calls at progress or at completion, whether the first of them landed or not, costs no
// outcome.
func TestShortOutageCostsNoOutcome(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 2; n <= 4; n++ { // 1 is the claim, 2 and 3 are progress, 4 is the completion
			f := &flaky{Store: memstore.New(nil), fail: n, after: after, down: 4}
			b := newBench(t, storetest.Harness[*memstore.Tx]{Store: f}, execute, &broker.Config{ReplayWait: -1, StoreTimeout: patience})
			c := b.propose("a", "b", "c")
			res, err := b.confirm(request(c), apply)
			require.NoError(t, err)
			require.True(t, f.fired)
			assert.Equal(t, contract.Tally{Applied: 3}, res.Tally(), "call %d, landed %t", n, after)
			assert.EqualValues(t, 3, b.calls.Load())
			again, err := b.confirm(request(c), b.never)
			require.NoError(t, err)
			assert.Equal(t, res.Outcomes, again.Outcomes)
		}
	}
}

// S14, S8: an outage that lasts is given up after StoreTimeout, and told as what it is: nobody knows what is recorded.
func TestLongOutageIsAmbiguous(t *testing.T) {
	for n := 2; n <= 3; n++ {
		f := &flaky{Store: memstore.New(nil), fail: n, down: 1 << 30}
		b := newBench(t, storetest.Harness[*memstore.Tx]{Store: f}, execute, &broker.Config{ReplayWait: -1, StoreTimeout: briefly})
		c := b.propose("a", "b")
		a := within(t, b.aside(request(c), apply))
		require.NoError(t, a.err)
		assert.Equal(t, []contract.OutcomeState{contract.Ambiguous, contract.Ambiguous}, states(a.res))
		assert.EqualValues(t, n-1, b.calls.Load(), "nothing starts whose start is not on record")
	}
}

// S14, S8: a completion that landed, whose reply was lost, and which then can be neither made again nor read is not told as settled by
// somebody else.
func TestACompletionThatCannotBeReadBack(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		s := spy(&h)
		b := newBench(t, h, execute, &broker.Config{ReplayWait: -1, StoreTimeout: patience})
		away := false
		s.complete = func(_ store.CompleteParams, pass func() error) error {
			err := pass()
			if !away && err == nil {
				away, err = true, errLost
			}
			return err
		}
		s.lookup = func(_ store.LookupParams, pass func() (store.Standing, error)) (store.Standing, error) {
			if away {
				return store.Standing{}, errLost
			}
			return pass()
		}
		c := b.propose("a")
		res, err := b.confirm(request(c), apply)
		require.NoError(t, err)
		assert.Equal(t, []contract.OutcomeState{contract.Ambiguous}, states(res))
		s.lookup = nil
		again, err := b.confirm(request(c), b.never)
		require.NoError(t, err)
		assert.Equal(t, contract.Tally{Applied: 1}, again.Tally(), "it had landed")
	})
}

// S14: a lock on the claim table that outlasts the lock timeout - somebody makes an index - costs no outcome either.
func TestTableLockCostsNoOutcome(t *testing.T) {
	for _, mode := range []string{execute, perItem} {
		for _, at := range []string{"progress", "completion"} {
			t.Run(mode+" at "+at, func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				h := waiting(t, db.Pool(t), briefly)
				s := spy(&h)
				b := newBench(t, h, mode, &broker.Config{ReplayWait: -1, StoreTimeout: patience})
				timeouts, unlock := 0, func() {}
				through := func(pass func() error) error {
					if timeouts == 0 {
						_, unlock = lockTable(t, db, "SHARE")
					}
					err := pass()
					if errors.Is(err, store.ErrLockTimeout) || errors.Is(err, store.ErrBusy) {
						if timeouts++; timeouts == 2 {
							unlock()
						}
					}
					return err
				}
				if at == "progress" {
					s.progress = through
				} else {
					s.complete = func(_ store.CompleteParams, pass func() error) error { return through(pass) }
				}
				c := b.propose("a", "b")
				res, err := b.confirm(request(c), func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
					out, err := apply(ctx, it, write)
					if it.ID == "a" && mode == perItem { // such an item's record is a write of its own
						err = broker.NotApplied(errors.New("refused"))
					}
					return out, err
				})
				require.NoError(t, err)
				assert.Equal(t, 2, timeouts)
				first := contract.Applied
				if mode == perItem {
					first = contract.Failed
				}
				assert.Equal(t, []contract.OutcomeState{first, contract.Applied}, states(res))
				again, err := b.confirm(request(c), b.never)
				require.NoError(t, err)
				assert.Equal(t, res.Outcomes, again.Outcomes)
			})
		}
	}
}

// S21, S17: a completion that was lost before it landed, and then refused since somebody else has settled the key, is not taken
// for recorded.
func TestLostCompletionAfterResolve(t *testing.T) {
	for _, seized := range []bool{true, false} {
		onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
			s := spy(&h)
			b := newBench(t, h, execute, nil)
			c := b.propose("a")
			lost := false
			var verdict *contract.OperationResult
			s.complete = func(_ store.CompleteParams, pass func() error) error {
				if lost {
					return pass()
				}
				lost = true
				if !seized { // and completed by itself, by a copy of the write that took its time
					require.NoError(t, pass())
					return errLost
				}
				b.Advance(long)
				var err error
				verdict, err = b.Resolve(b.ctx, resolution(c), func(context.Context, broker.Item) (broker.Verdict, error) {
					return broker.FoundAbsent("not there yet"), nil
				})
				require.NoError(t, err)
				return errLost
			}
			res, err := b.confirm(request(c), apply)
			require.True(t, lost)
			if !seized {
				require.NoError(t, err)
				assert.Equal(t, contract.Tally{Applied: 1}, res.Tally())
				return
			}
			require.ErrorIs(t, err, contract.ErrFenced)
			again, err := b.confirm(request(c), b.never)
			require.NoError(t, err)
			assert.Equal(t, verdict.Outcomes, again.Outcomes)
			st, err := b.Lookup(b.ctx, firmA, c.IdempotencyKey)
			require.NoError(t, err)
			assert.Len(t, st.Contradictions, 1)
		})
	}
}

// S11: a new key is held by nobody: a proposal that has to wait too long is told that the store is busy, not that somebody
// runs its operation, and that nothing was done.
func TestProposalIsNeverInProgress(t *testing.T) {
	refused := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, contract.ErrUnavailable)
		require.NotErrorIs(t, err, contract.ErrInProgress)
		failure, _ := contract.FailureOf(err)
		assert.True(t, failure.KnownNoEffect())
	}
	st := memstore.New(&memstore.Config{LockTimeout: briefly})
	m := newBench(t, storetest.Harness[*memstore.Tx]{Store: st}, execute, nil)
	tx, err := st.BeginTx(m.ctx)
	require.NoError(t, err)
	_, err = m.Propose(m.ctx, firmA, proposal("a"))
	refused(err)
	require.NoError(t, tx.Rollback())

	db := pgtest.New(t)
	b := newBench(t, waiting(t, db.Pool(t), briefly), execute, nil)
	_ = b.propose("warm")
	_, unlock := lockTable(t, db, "SHARE")
	_, err = b.Propose(b.ctx, firmA, proposal("a"))
	refused(err)
	unlock()
	_ = b.propose("a")
}

// S33: what is asked of the store for a caller who is denied takes no longer than StoreTimeout.
func TestDeniedCallerWaitsNoLonger(t *testing.T) {
	for _, mode := range []string{execute, perItem, atomically} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			one := db.Pool(t, onlyConnection)
			b := newBench(t, postgres(t, one), mode, &broker.Config{ReplayWait: -1, StoreTimeout: briefly,
				Authorize: func(context.Context, broker.Access) error { return errors.New("no") }})
			c := newBench(t, postgres(t, db.Pool(t)), mode, nil).propose("a")
			tx, err := one.Begin(t.Context())
			require.NoError(t, err)
			a := within(t, b.aside(request(c), b.never))
			require.ErrorIs(t, a.err, contract.ErrUnavailable)
			require.NoError(t, tx.Rollback(t.Context()))
		})
	}
}

// S28b: what the store writes in its own transactions is as durable as "on", whatever the role's default is.
func TestOwnWritesAreDurable(t *testing.T) {
	for _, level := range []string{"off", "local", "remote_write"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			_, err := db.AdminPool(t).Exec(t.Context(), `CREATE POLICY durable ON agents.agent_idempotency_key AS RESTRICTIVE
				WITH CHECK (current_setting('synchronous_commit') IN ('on', 'remote_apply'))`)
			require.NoError(t, err)
			pool := db.Pool(t, withSetting("synchronous_commit", level))
			_, err = pool.Exec(t.Context(), `SELECT set_config('app.firm_id', $1, false)`, firmA)
			require.NoError(t, err)
			_, err = pool.Exec(t.Context(), `INSERT INTO agents.agent_idempotency_key (firm_id, boundary) VALUES ($1, 'other')`, firmA)
			require.ErrorContains(t, err, "42501", "so that a write that is less durable shows")
			for _, mode := range []string{execute, perItem, atomically} {
				b := newBench(t, postgres(t, pool), mode, nil)
				res, err := b.confirm(request(b.propose("a", "b")), apply)
				require.NoError(t, err, mode)
				assert.Equal(t, contract.Tally{Applied: 2}, res.Tally(), mode)
				res, err = b.confirm(request(b.propose("a", "b")), func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
					return broker.Applied(it.ID), errors.New("reset")
				})
				require.NoError(t, err, mode)
				require.Error(t, res.Err())
			}
			b := newBench(t, postgres(t, pool), execute, nil)
			_, err = b.Cancel(b.ctx, firmA, b.propose("a").IdempotencyKey)
			require.NoError(t, err)
			crashed := b.propose("a")
			b.crashed(crashed, short, "a")
			b.Advance(2 * short)
			for _, found := range []broker.Verdict{broker.StillUnknown("later"), broker.FoundAbsent("not there")} {
				_, err = b.Resolve(b.ctx, resolution(crashed), func(context.Context, broker.Item) (broker.Verdict, error) { return found, nil })
				require.NoError(t, err)
			}
			soon := b.with(broker.Config{PayloadRetention: time.Nanosecond})
			n, err := soon.Purge(b.ctx, broker.Page{Tenant: firmA})
			require.NoError(t, err)
			assert.Positive(t, n)
		})
	}
}

// S12, S14: a claim that the database refuses only when it commits is no claim: nothing runs under it, and the key is as it was.
func TestClaimIsRefusedAtItsCommit(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	one := db.Pool(t, onlyConnection)
	b := newBench(t, postgres(t, one), execute, nil)
	for _, mode := range []string{execute, perItem} { // every statement is known to the connection
		b.mode = mode
		_, err := b.confirm(request(b.propose("warm")), apply)
		require.NoError(t, err)
	}
	c := b.propose("a", "b")
	_, err := db.AdminPool(t).Exec(t.Context(), `ALTER TABLE agents.agent_idempotency_key ADD CONSTRAINT one_operation
		EXCLUDE (firm_id WITH =) WHERE (boundary = 'operation' AND completed_at IS NULL) DEFERRABLE INITIALLY DEFERRED`)
	require.NoError(t, err)
	b.crashed(b.propose("z"), long, "")
	for _, mode := range []string{execute, perItem} {
		b.mode = mode
		_, err = b.confirm(request(c), b.never)
		require.ErrorIs(t, err, contract.ErrUnavailable, mode)
		assert.NotContains(t, err.Error(), "one_operation", mode)
		assert.Equal(t, broker.Proposed, b.phase(c), mode)
	}
}

// S14, S30: a store with one writer cannot tell whose transaction holds it: a confirm that waits too long is told that the store is
// busy, not that its operation runs, nor that nothing was done under its key.
func TestAnotherKeyIsNotInProgress(t *testing.T) {
	st := memstore.New(&memstore.Config{LockTimeout: briefly})
	for _, mode := range []string{execute, atomically, perItem} {
		b := newBench(t, storetest.Harness[*memstore.Tx]{Store: st}, mode, nil)
		c := b.propose("a")
		tx, err := st.BeginTx(b.ctx)
		require.NoError(t, err)
		_, err = b.confirm(request(c), b.never)
		require.ErrorIs(t, err, contract.ErrUnavailable)
		require.NotErrorIs(t, err, contract.ErrInProgress)
		failure, _ := contract.FailureOf(err)
		assert.False(t, failure.KnownNoEffect())
		require.NoError(t, tx.Rollback())
	}
}

// R121, S30: a value that a guard names, or the table, is not the key: who waits too long for one is told that the store is busy, not
// that the operation runs, which may never have been confirmed, nor that nothing was done under its key.
func TestLockBesideTheKeyIsNotInProgress(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := newBench(t, waiting(t, db.Pool(t), briefly), execute, nil)
	require.NoError(t, b.move(0))
	refused := func(err error, what string) {
		t.Helper()
		require.ErrorIs(t, err, contract.ErrUnavailable, what)
		require.NotErrorIs(t, err, contract.ErrInProgress, what)
		failure, _ := contract.FailureOf(err)
		assert.False(t, failure.KnownNoEffect(), what)
	}
	for name, lock := range map[string]func() (unlock func()){
		"a value that moves": func() func() {
			tx, err := b.Begin(b.ctx)
			require.NoError(t, err)
			require.NoError(t, b.swap(b.ctx, tx, 1))
			return func() { _ = b.Rollback(b.ctx, tx) }
		},
		"the table": func() func() {
			_, unlock := lockTable(t, db, "ACCESS EXCLUSIVE")
			return unlock
		},
	} {
		for _, mode := range []string{execute, perItem, atomically, inTx} {
			b.mode = mode
			c := b.propose("a")
			unlock := lock()
			_, err := b.confirm(under(1, request(c)), b.never)
			unlock()
			refused(err, name+", "+mode)
			assert.Equal(t, broker.Proposed, b.phase(c), "%s, %s", name, mode)
		}
	}
	c := b.propose("a")
	_, unlock := lockTable(t, db, "ACCESS EXCLUSIVE")
	st, err := b.Store.Own().Lookup(b.ctx, store.LookupParams{ID: store.ID{Tenant: firmA, Key: c.IdempotencyKey}})
	unlock()
	require.ErrorIs(t, err, store.ErrBusy, "a lookup")
	assert.Nil(t, st.Proposal)
}

// S14: the way back from a transaction that failed is not waited for without end, when the network goes silent just then.
func TestNetworkGoesSilentBeforeTheRollback(t *testing.T) {
	const never = 1000
	for name, call := range map[string]func(b *bench[pgx.Tx], arm func()) error{ // each ends with its rollback
		"begin": func(b *bench[pgx.Tx], arm func()) error {
			arm()
			_, _, err := b.Store.Begin(b.ctx, store.Opening{
				ID: store.ID{Tenant: firmA}, Guards: []store.Guard{{Name: epoch.Name, Revision: 1}},
			})
			return err
		},
		"commit": func(b *bench[pgx.Tx], arm func()) error {
			tx, _, err := b.Store.Begin(b.ctx, store.Opening{ID: store.ID{Tenant: firmA}})
			require.NoError(b, err)
			arm()
			fenced := store.Fenced{ID: store.ID{Tenant: firmA, Key: uuid.New()}, Attempt: uuid.New(), Fence: 1}
			return b.Store.Commit(b.ctx, tx, store.Closing{Complete: &store.CompleteParams{Fenced: fenced, Outcomes: []byte("x")}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := faultnet.Fault(t, pgtest.New(t).AppDSN)
			pc, err := pgxpool.ParseConfig(in.DSN())
			require.NoError(t, err)
			onlyConnection(pc)
			pool, err := pgxpool.NewWithConfig(t.Context(), pc)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			b := newBench(t, postgres(t, pool), execute, nil)
			silence := func(n int) func() { return func() { in.Arm(n, faultnet.Before, faultnet.Silence) } }
			for range 3 { // the third time as every time
				require.Error(t, call(b, silence(never)))
			}
			last := in.Boundaries()
			done := make(chan error, 1)
			go func() { done <- call(b, silence(last)) }()
			require.Error(t, within(t, done))
			assert.True(t, in.Fired())
			in.Disarm()
		})
	}
}
