package brokertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// watcher is a second confirmer and a reader, who note every change of what they are told of a key.
type watcher struct {
	mu              sync.Mutex
	answers, phases []string
}

func note(seen *[]string, s string) {
	if n := len(*seen); n == 0 || (*seen)[n-1] != s {
		*seen = append(*seen, s)
	}
}

func watch[TTx any](b *bench[TTx], w *watcher, c contract.OperationConfirmation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	res, err := b.confirm(request(c), b.never)
	if a := broker.AnswerOf(res, err); a != "unavailable" { // says nothing of the key
		note(&w.answers, a)
	}
	if st, err := b.Lookup(b.ctx, firmA, c.IdempotencyKey); err == nil {
		note(&w.phases, string(st.Phase))
	}
}

// forward checks that nothing was seen to go back.
func (w *watcher) forward(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	order := map[string]int{"in_progress": 1, "unresolved": 2, "ambiguous": 2, "completed": 3, "replayed": 3}
	for _, seen := range [][]string{w.answers, w.phases} {
		require.NotEmpty(t, seen)
		for i, s := range seen {
			require.Contains(t, order, s)
			require.True(t, i == 0 || order[seen[i-1]] < order[s], "went back: %v", seen)
		}
	}
	assert.Equal(t, "completed", w.phases[len(w.phases)-1])
}

// S14, S30: an item uses up its lease. What others are told of the key never goes back, what ran is recorded, and what had not
// started by then does not start: Resolve may have settled by now that it never will.
func TestItemUsesUpItsLease(t *testing.T) {
	for mode, rest := range map[string]contract.OutcomeState{execute: contract.Skipped, perItem: ""} {
		for name, fail := range map[string]error{"applied": nil, "not applied": broker.NotApplied(errors.New("refused"))} {
			t.Run(mode+" "+name, func(t *testing.T) {
				onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
					b := newBench(t, h, mode, &broker.Config{ReplayWait: -1, Lease: long})
					other := newBench(t, h, execute, nil)
					c := b.propose("a", "b", "c")
					w := &watcher{}
					res, err := b.confirm(request(c), func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
						look := func() {
							if mode == execute { // else the item's transaction holds the only writer
								watch(other, w, c)
							}
						}
						look()
						if it.ID == "a" {
							return broker.Applied("ref/a"), nil
						}
						b.Advance(long)
						look()
						return broker.Applied("ref/" + it.ID), fail
					})
					watch(other, w, c)
					require.NoError(t, err)
					w.forward(t)
					want := contract.Applied
					if fail != nil {
						want = contract.Failed
					}
					require.Len(t, res.Outcomes, 3)
					assert.Equal(t, []contract.OutcomeState{contract.Applied, want}, states(res)[:2])
					if rest != "" {
						assert.Equal(t, rest, res.Outcomes[2].State)
						assert.Equal(t, contract.ReasonNotStarted, res.Outcomes[2].Reason)
					}
					again, err := b.confirm(request(c), b.never)
					require.NoError(t, err)
					assert.Equal(t, res.Outcomes, again.Outcomes)
				})
			})
		}
	}
}

// S14, S30: the same on a database, where the lease ends while the progress waits for a lock.
func TestLeaseIsOverBeforeProgressIsWritten(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin, pool := db.AdminPool(t), db.Pool(t)
	h := waiting(t, pool, briefly)
	s := spy(&h)
	b := newBench(t, h, execute, &broker.Config{ReplayWait: -1, Lease: 6 * time.Second, StoreTimeout: patience})
	other, w := newBench(t, waiting(t, pool, briefly), execute, nil), &watcher{}
	c := b.propose("a", "b")
	const row = ` FROM agents.agent_idempotency_key WHERE boundary = 'operation' AND request_id = $1`
	locked := make(chan struct{})
	unlocked := make(chan struct{})
	s.progress = func(pass func() error) error {
		select {
		case <-locked:
			return pass()
		default:
		}
		tx, err := admin.Begin(b.ctx)
		require.NoError(t, err)
		_, err = tx.Exec(b.ctx, `SELECT 1`+row+` FOR UPDATE`, c.IdempotencyKey.String())
		require.NoError(t, err)
		close(locked)
		go func() {
			defer close(unlocked)
			until(t, func() (over bool) {
				require.NoError(t, tx.QueryRow(b.ctx, `SELECT lease_until <= clock_timestamp()`+row, c.IdempotencyKey.String()).Scan(&over))
				return over
			})
			watch(other, w, c)
			assert.NoError(t, tx.Rollback(b.ctx))
		}()
		return pass()
	}
	s.complete = func(_ store.CompleteParams, pass func() error) error {
		watch(other, w, c)
		return pass()
	}
	res, err := b.confirm(request(c), func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
		assert.Equal(t, "a", it.ID, "nothing starts after the lease")
		watch(other, w, c)
		return broker.Applied("ref/a"), nil
	})
	within(t, unlocked)
	watch(other, w, c)
	require.NoError(t, err)
	assert.Equal(t, []contract.OutcomeState{contract.Applied, contract.Skipped}, states(res))
	assert.Equal(t, contract.ReasonNotStarted, res.Outcomes[1].Reason)
	assert.Equal(t, []string{"in_progress", "unresolved", "completed"}, w.phases)
	w.forward(t)
}

// S31: an executor's context ends before the lease does, so that what it did can be recorded within it: also when the claim, the
// progress or the transaction that it runs under took its time.
func TestExecutorEndsBeforeItsLease(t *testing.T) {
	const lease, margin = time.Minute, 200 * time.Millisecond
	for _, mode := range []string{execute, perItem} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			admin, h := db.AdminPool(t), postgres(t, db.Pool(t))
			s := spy(&h)
			slow := func() { time.Sleep(3 * margin) }
			s.claim = func(_ context.Context, _ store.ClaimParams, pass func() (store.Standing, error)) (store.Standing, error) {
				defer slow()
				return pass()
			}
			s.progress = func(pass func() error) error {
				defer slow()
				return pass()
			}
			s.begin = slow
			s.commit = func(_ pgx.Tx, _ store.Closing, pass func() error) error {
				defer slow()
				return pass()
			}
			b := newBench(t, h, mode, &broker.Config{ReplayWait: -1, Lease: lease})
			c := b.propose("a", "b")
			_, err := b.confirm(request(c), func(ctx context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
				var until time.Time
				require.NoError(t, admin.QueryRow(ctx, `SELECT lease_until FROM agents.agent_idempotency_key WHERE boundary = 'operation'
					AND request_id = $1`, it.OperationKey.String()).Scan(&until))
				deadline, ok := ctx.Deadline()
				require.True(t, ok)
				assert.LessOrEqual(t, deadline.Sub(until), -margin, "item %s", it.ID)
				assert.Greater(t, deadline.Sub(until), -lease/2, "item %s has most of its lease", it.ID)
				return broker.Applied(it.ID), nil
			})
			require.NoError(t, err)
		})
	}
}

// S14: a caller that leaves between two items costs no outcome: what was claimed is carried out and recorded.
func TestCallerLeavesBetweenItems(t *testing.T) {
	for _, when := range []string{"while the first item runs", "after its commit"} {
		t.Run(when, func(t *testing.T) {
			onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
				s := spy(&h)
				b := newBench(t, h, perItem, nil)
				ctx, leave := context.WithCancel(b.ctx)
				defer leave()
				s.commit = func(_ *memstore.Tx, _ store.Closing, pass func() error) error {
					defer leave()
					return pass()
				}
				c := b.propose("a", "b", "c")
				res, err := b.ExecutePerItem(ctx, request(c), func(ctx context.Context, tx *memstore.Tx, it broker.Item) (broker.Outcome, error) {
					if when != "after its commit" {
						leave()
					}
					return broker.Applied(it.ID), errors.Join(ctx.Err(), b.Effect(ctx, tx, it.ID))
				})
				require.NoError(t, err)
				assert.Equal(t, contract.Tally{Applied: 3}, res.Tally())
				again, err := b.confirm(request(c), b.never)
				require.NoError(t, err)
				assert.Equal(t, res.Outcomes, again.Outcomes)
			})
		})
	}
}
