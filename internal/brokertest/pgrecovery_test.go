package brokertest

import (
	"context"
	"errors"
	"testing"

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

// S12: the broker runs its own transactions again after a serialization failure or a deadlock, a bounded number of times; the executor
// may swallow the error. After that nothing is stored of an operation that was undone whole, and an item is failed: it was undone.
func TestOwnTransactionsAreRunAgain(t *testing.T) {
	for _, mode := range []string{perItem, atomically} {
		for _, swallow := range []bool{false, true} {
			t.Run(mode, func(t *testing.T) {
				b := onPostgres(t)
				b.mode = mode
				executor := func(fail int) broker.TxExecutor[pgx.Tx] {
					tries := 0
					return func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
						if err := b.Effect(ctx, tx, it.ID); err != nil {
							return broker.Outcome{}, err
						}
						if it.ID == "b" {
							tries++
							if tries <= fail {
								_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
								if !swallow {
									return broker.Outcome{}, err
								}
							}
						}
						return broker.Applied(it.ID), nil
					}
				}
				run := func(c contract.OperationConfirmation, fail int) (*contract.OperationResult, error) {
					if mode == perItem {
						return b.ExecutePerItem(b.ctx, request(c), executor(fail))
					}
					return b.ExecuteAtomic(b.ctx, broker.TxRequest[pgx.Tx]{Request: request(c)}, executor(fail))
				}
				res, err := run(b.propose("a", "b"), 3)
				require.NoError(t, err)
				assert.Equal(t, contract.Tally{Applied: 2}, res.Tally())
				assert.Equal(t, [2]int{1, 1}, [2]int{b.effects("a"), b.effects("b")})

				c := b.propose("a", "b")
				res, err = run(c, 100)
				if mode == perItem {
					require.NoError(t, err)
					assert.Equal(t, []contract.OutcomeState{contract.Applied, contract.Failed}, states(res))
					assert.Equal(t, contract.ReasonRetryTx, res.Outcomes[1].Reason)
					return
				}
				failure, ok := contract.FailureOf(err)
				require.True(t, ok)
				assert.True(t, failure.KnownNoEffect())
				assert.Equal(t, broker.Proposed, b.phase(c))
			})
		}
	}
}

// S15: what only the commit refuses - a deferred constraint - is failed in a transaction of its own, and nothing at all in one
// for all items.
func TestCommitIsRefused(t *testing.T) {
	db := pgtest.New(t)
	_, err := db.AdminPool(t).Exec(t.Context(), `ALTER TABLE effect ADD CONSTRAINT once UNIQUE (name) DEFERRABLE INITIALLY DEFERRED`)
	require.NoError(t, err)
	b := newBench(t, postgres(t, db.Pool(t)), perItem, nil)
	twice := func(_ context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
		err := write("same")
		return broker.Applied(it.ID), err
	}
	res, err := b.confirm(request(b.propose("a", "b", "c")), twice)
	require.NoError(t, err)
	assert.Equal(t, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Failed}, states(res))
	assert.Equal(t, contract.ReasonNotCommitted, res.Outcomes[1].Reason)
	assert.Contains(t, res.Outcomes[1].Detail, "once")

	b.mode = atomically
	c := b.propose("a")
	_, err = b.confirm(request(c), twice)
	require.ErrorIs(t, err, contract.ErrUnavailable)
	failure, _ := contract.FailureOf(err)
	assert.True(t, failure.KnownNoEffect())
	assert.Equal(t, broker.Proposed, b.phase(c))
	assert.Equal(t, 1, b.effects("same"))
}

// S21, S32: an executor that wakes up after Resolve has lost its key: what it says against the verdict is recorded and does not
// change it.
func TestLateExecutorIsFenced(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		b := newBench(t, h, execute, nil)
		c := b.propose("a")
		started, wake, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := b.Execute(b.ctx, request(c), func(context.Context, broker.Item) (broker.Outcome, error) {
				close(started)
				<-wake
				return broker.Applied("late"), nil
			})
			done <- err
		}()
		<-started
		b.Advance(long) // the database's clock; the executor sleeps
		res, err := b.Resolve(b.ctx, resolution(c), func(context.Context, broker.Item) (broker.Verdict, error) {
			return broker.FoundAbsent("not there yet"), nil
		})
		require.NoError(t, err)
		require.True(t, res.Outcomes[0].Provisional)
		close(wake)
		require.ErrorIs(t, <-done, contract.ErrFenced)

		again, err := b.confirm(request(c), b.never)
		require.NoError(t, err)
		assert.Equal(t, res.Outcomes, again.Outcomes, "the verdict stands")
		st, err := b.Lookup(b.ctx, firmA, c.IdempotencyKey)
		require.NoError(t, err)
		require.Len(t, st.Contradictions, 1)
		assert.Equal(t, "late", st.Contradictions[0].Said.Ref)
		page, err := b.ListUnresolved(b.ctx, broker.Page{Tenant: firmA})
		require.NoError(t, err)
		require.Len(t, page, 1)
		assert.True(t, page[0].Contested)
		assert.True(t, page[0].Completed)
	})
}

// S14, S21: commits of the broker's own transactions whose reply is lost are found out by reading.
func TestLostCommitsOfOwnTransactions(t *testing.T) {
	for _, mode := range []string{perItem, atomically} {
		for _, landed := range []bool{false, true} {
			onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
				lossy := &lossyCommit{Store: h.Store, landed: landed}
				h.Store = lossy
				b := newBench(t, h, mode, nil)
				c := b.propose("a", "b")
				lossy.lose = 1
				res, err := b.confirm(request(c), apply)
				switch {
				case mode == atomically && !landed:
					failure, ok := contract.FailureOf(err)
					require.True(t, ok)
					assert.True(t, failure.KnownNoEffect())
					assert.Equal(t, broker.Proposed, b.phase(c))
					return
				case mode == perItem && !landed:
					require.NoError(t, err)
					assert.Equal(t, []contract.OutcomeState{contract.Failed, contract.Applied}, states(res))
					assert.Equal(t, contract.ReasonNotCommitted, res.Outcomes[0].Reason)
				default:
					require.NoError(t, err)
					assert.Equal(t, contract.Tally{Applied: 2}, res.Tally())
				}
				again, err := b.confirm(request(c), b.never)
				require.NoError(t, err)
				assert.Equal(t, res.Outcomes, again.Outcomes)
			})
		}
	}
}

// lossyCommit loses the reply of the next commits, which land or do not.
type lossyCommit struct {
	store.Store[*memstore.Tx]
	landed bool
	lose   int
}

func (l *lossyCommit) Commit(ctx context.Context, tx *memstore.Tx, c store.Closing) error {
	if l.lose == 0 {
		return l.Store.Commit(ctx, tx, c)
	}
	l.lose--
	if l.landed {
		if err := l.Store.Commit(ctx, tx, c); err != nil {
			return errors.Join(err)
		}
	} else if err := l.Store.Rollback(ctx, tx); err != nil {
		return err
	}
	return errLost
}
