package traps

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// Reports about transactions, savepoints and isolation.

// S15, S12, S28a: one item's SQL error is that item's; a transaction that is gone or must go is said to be.
func TestIncidentsTransactions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	t.Run("incident 49: an SQL error in the middle item fails that item only, and the completion is written", func(t *testing.T) {
		b := on(t, db.Pool(t))
		c := b.propose("49/0", "49/1", "49/2")
		res, err := b.confirm(c, func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			out, err := insert(ctx, tx, it)
			if it.Index == 1 {
				_, err = tx.Exec(ctx, `SELECT 1/0`)
			}
			return out, err
		})
		require.NoError(t, err)
		assert.Equal(t, contract.Tally{Applied: 2, Failed: 1}, res.Tally())
		assert.Equal(t, broker.Completed, b.phase(c))
	})
	t.Run("incident 53: a transaction that its owner has ended is an error, and nothing runs", func(t *testing.T) {
		b := on(t, db.Pool(t))
		for _, end := range []func(pgx.Tx) error{
			func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
			func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
		} {
			c := b.propose("a")
			tx := b.begin()
			require.NoError(t, end(tx))
			_, err := b.ExecuteTx(t.Context(), tx, txRequest(c), b.never)
			require.ErrorIs(t, err, contract.ErrTxEnded)
			assert.Equal(t, broker.Proposed, b.phase(c))
		}
	})
	t.Run("incident 56: a storm of serialization failures returns at once, each time", func(t *testing.T) {
		b := on(t, db.Pool(t))
		c := b.propose("a", "b")
		for range 20 { // ExecuteTx has no retry of its own: attempts are the owner's to count
			calls := 0
			_, err := b.confirm(c, func(ctx context.Context, tx pgx.Tx, _ broker.Item) (broker.Outcome, error) {
				calls++
				_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
				return broker.Outcome{}, err
			})
			require.ErrorIs(t, err, contract.ErrRetryTx)
			require.Equal(t, 1, calls)
		}
		assert.Equal(t, broker.Proposed, b.phase(c))
	})
	t.Run("incident 58: a unique violation of the caller's own index is an item's failure", func(t *testing.T) {
		b := on(t, db.Pool(t))
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
			tx := b.begin(pgx.TxOptions{IsoLevel: level})
			res, err := b.ExecuteTx(t.Context(), tx, txRequest(b.propose("a", "b", "c")),
				func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
					_, err := tx.Exec(ctx, `INSERT INTO effect (name, once) VALUES ($1, $2)`, it.ID, string(level)+[]string{"x", "x", "y"}[it.Index])
					return broker.Applied(it.ID), err
				})
			require.NoError(t, err, level)
			require.NoError(t, tx.Commit(t.Context()))
			assert.Equal(t, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Applied}, states(res), level)
		}
	})
	t.Run("incident 58: a lost race for the key is never a unique violation", func(t *testing.T) {
		b := on(t, db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 16 }))
		c := b.propose("58")
		answers := make(chan error, 8)
		for range cap(answers) {
			tx := b.begin(pgx.TxOptions{IsoLevel: pgx.Serializable})
			go func() {
				_, err := b.ExecuteTx(t.Context(), tx, txRequest(c), insert)
				if err == nil {
					err = tx.Commit(t.Context())
				} else {
					_ = tx.Rollback(t.Context())
				}
				answers <- err
			}()
		}
		won := 0
		for range cap(answers) {
			switch err := <-answers; {
			case err == nil:
				won++
			case !errors.Is(err, contract.ErrRetryTx):
				sqlState(t, "40001", err) // at the commit
			}
		}
		assert.Equal(t, 1, effects(t, b.pool, "58"))
		assert.GreaterOrEqual(t, won, 1, "the others may have replayed it")
	})
	t.Run("incident 61: a panic in every item leaves no lock and no connection behind", func(t *testing.T) {
		b := on(t, db.Pool(t))
		c := b.propose("a", "b")
		tx := b.begin()
		res, err := b.ExecuteTx(t.Context(), tx, txRequest(c), func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			_, _ = insert(ctx, tx, it)
			panic("boom")
		})
		require.NoError(t, err)
		assert.Equal(t, contract.Tally{Failed: 2}, res.Tally())
		require.NoError(t, tx.Rollback(t.Context()))
		assert.Zero(t, b.pool.Stat().AcquiredConns())
		assert.Zero(t, one[int](t, db.AdminPool(t), `SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
			JOIN pg_stat_activity a USING (pid) WHERE a.datname = current_database() AND c.relname = 'agent_idempotency_key'`))
		assert.Equal(t, broker.Proposed, b.phase(c))
	})
	t.Run("incident 63: a context that ends inside an item undoes everything, and the connection goes on", func(t *testing.T) {
		b := on(t, db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 }))
		c := b.propose("63/0", "63/1")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		_, err = b.ExecuteTx(ctx, tx, txRequest(c), func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			out, err := insert(ctx, tx, it)
			cancel()
			return out, err
		})
		require.ErrorIs(t, err, contract.ErrUnavailable)
		_ = tx.Rollback(context.WithoutCancel(ctx))
		assert.Equal(t, broker.Proposed, b.phase(c))
		assert.Zero(t, effects(t, b.pool, "63/0"))
	})
}

// swallowing is an executor whose second item swallows the error of sql.
func swallowing(sql string) broker.TxExecutor[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
		out, err := insert(ctx, tx, it)
		if it.Index == 1 {
			_, _ = tx.Exec(ctx, sql)
		}
		return out, err
	}
}

// S15: incident 51: whichever SQL error an executor swallows, the item is failed and the others stand: the error is not
// taken for one of the store's own.
func TestIncident51AnySwallowedError(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	raise := func(state string) string { return `DO $$ BEGIN RAISE SQLSTATE '` + state + `'; END $$` }
	cases := map[string]string{"22012": `SELECT 1/0`, "3B001": `ROLLBACK TO SAVEPOINT absent`}
	for _, state := range []string{"23505", "42501", "57014", "57P01", "53100", "25P02", "40003", "55P03", "25P01"} {
		cases[state] = raise(state)
	}
	for name, sql := range cases {
		t.Run(name, func(t *testing.T) {
			b := on(t, db.Pool(t))
			c := b.propose(name+"/0", name+"/1", name+"/2")
			res, err := b.confirm(c, swallowing(sql))
			require.NoError(t, err)
			assert.Equal(t, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Applied}, states(res))
			assert.Equal(t, contract.ReasonRolledBack, res.Outcomes[1].Reason)
			assert.Contains(t, res.Outcomes[1].Detail, name, "the first cause")
			assert.Zero(t, effects(t, b.pool, name+"/1"))
		})
	}
}

// leftovers are results that an executor may leave unread. The last ones hold an error that it has not come to.
var leftovers = map[string]func(context.Context, pgx.Tx){
	"rows":  func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Query(ctx, `SELECT generate_series(1, 100000)`) },
	"a row": func(ctx context.Context, tx pgx.Tx) { _ = tx.QueryRow(ctx, `SELECT 1`) },
	"a batch": func(ctx context.Context, tx pgx.Tx) {
		b := &pgx.Batch{}
		b.Queue(`SELECT 1`)
		_ = tx.SendBatch(ctx, b)
	},
	"rows of a batch": func(ctx context.Context, tx pgx.Tx) {
		b := &pgx.Batch{}
		b.Queue(`SELECT generate_series(1, 100000)`)
		_, _ = tx.SendBatch(ctx, b).Query()
	},
	"rows of a nested transaction": func(ctx context.Context, tx pgx.Tx) {
		nested, err := tx.Begin(ctx)
		if err == nil {
			_, _ = nested.Query(ctx, `SELECT generate_series(1, 100000)`)
		}
	},
	"an error": func(ctx context.Context, tx pgx.Tx) {
		_, _ = tx.Query(ctx, `SELECT 1/(n - 50000) FROM generate_series(1, 100000) n`)
	},
	"an error of a batch": func(ctx context.Context, tx pgx.Tx) {
		b := &pgx.Batch{}
		b.Queue(`SELECT 1`)
		b.Queue(`SELECT 1/0`)
		_ = tx.SendBatch(ctx, b)
	},
}

// S15: an executor that leaves results open costs no other item anything, and its own only if they hold an error.
func TestResultsLeftOpen(t *testing.T) {
	t.Parallel()
	b := on(t, pgtest.New(t).Pool(t))
	for name, leave := range leftovers {
		exec := func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			out, err := insert(ctx, tx, it)
			if it.Index == 0 {
				leave(ctx, tx)
			}
			return out, err
		}
		want := []contract.OutcomeState{contract.Applied, contract.Applied}
		if strings.Contains(name, "an error") {
			want[0] = contract.Failed
		}
		res, err := b.confirm(b.propose("a", "b"), exec)
		if assert.NoError(t, err, name) {
			assert.Equal(t, want, states(res), name)
		}
		res, err = b.ExecutePerItem(t.Context(), txRequest(b.propose("a", "b")).Request, exec)
		if assert.NoError(t, err, name) {
			assert.Equal(t, want, states(res), name)
		}
		res, err = b.ExecuteAtomic(t.Context(), txRequest(b.propose("a", "b")), exec)
		if assert.NoError(t, err, name) {
			assert.Equal(t, want, states(res), name)
		}
	}
}

// S31, S15: to close what an executor left open is not waited for without end, and a batch's callback that panics then is the
// executor's error, not the broker's.
func TestResultsThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	b := on(t, pool)
	for name, leave := range map[string]func(context.Context, pgx.Tx){
		"endless rows": func(_ context.Context, tx pgx.Tx) {
			_ = tx.QueryRow(context.Background(), `SELECT repeat('x', 100000), pg_sleep(0.05) FROM generate_series(1, 100000)`)
		},
		"a panic": func(ctx context.Context, tx pgx.Tx) {
			batch := &pgx.Batch{}
			batch.Queue(`SELECT 1`).QueryRow(func(pgx.Row) error { panic("callback") })
			_ = tx.SendBatch(ctx, batch)
		},
	} {
		exec := func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			out, err := insert(ctx, tx, it)
			leave(ctx, tx)
			return out, err
		}
		before := effects(t, pool, "a")
		res, err := b.ExecutePerItem(t.Context(), txRequest(b.propose("a")).Request, exec)
		if assert.NoError(t, err, name) {
			assert.NotEqual(t, contract.Applied, res.Outcomes[0].State, name)
		}
		res, err = b.ExecuteAtomic(t.Context(), txRequest(b.propose("a")), exec)
		if err == nil {
			assert.NotEqual(t, contract.Applied, res.Outcomes[0].State, name)
		}
		assert.Equal(t, before, effects(t, pool, "a"), name)
		assert.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 20*time.Second, 5*time.Millisecond, name)
	}
}

// S16, S28a: an executor that binds another tenant is refused when it returns; the owner, who must roll back, is not told
// that nothing was done.
func TestExecutorChangesTenant(t *testing.T) {
	t.Parallel()
	b := on(t, pgtest.New(t).Pool(t))
	c := b.propose("a")
	_, err := b.confirm(c, func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
		out, err := insert(ctx, tx, it)
		if err == nil {
			_, err = tx.Exec(ctx, `SELECT set_config('app.firm_id', 'firm-b', true)`)
		}
		return out, err
	})
	require.Error(t, err)
	assert.Equal(t, broker.Proposed, b.phase(c), "rolled back by its owner")
	assert.Zero(t, effects(t, b.pool, "a"))
}

// S12: where the role's transactions have one snapshot by default, the store's own claims have it too: a confirm that loses
// a race is never a first run.
func TestOwnClaimsWithOneSnapshot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	plain := db.Pool(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		st := pgstore.New(db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level }))
		id := proposed(t, st)
		winner := begin(t, plain)
		won, err := pgstore.New(plain).In(winner).Claim(t.Context(), claimOf(id))
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			s, err := st.Own().Claim(t.Context(), claimOf(id))
			if err == nil && s.Claim.Attempt != won.Claim.Attempt {
				err = errors.New("a second winner")
			}
			done <- err
		}()
		waitForLock(t, plain, 1)
		require.NoError(t, winner.Commit(t.Context()))
		if err := <-done; err != nil {
			require.ErrorIs(t, err, store.ErrRetryTx, level)
		}
		s, err := st.Own().Claim(t.Context(), claimOf(id))
		require.NoError(t, err)
		assert.Equal(t, won.Claim.Attempt, s.Claim.Attempt, level)
	}
}

// S28a: a wait that an executor or its owner has bounded on its own is bounded so: the lock timeout of the transaction is
// the owner's again while items run.
func TestLockTimeoutInsideItems(t *testing.T) {
	t.Parallel()
	b := on(t, pgtest.New(t).Pool(t))
	tx := b.begin()
	must(t, tx, `SET LOCAL lock_timeout = '4321ms'`)
	var inside string
	_, err := b.ExecuteTx(t.Context(), tx, txRequest(b.propose("a")), func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
		inside = one[string](t, tx, `SHOW lock_timeout`)
		return insert(ctx, tx, it)
	})
	require.NoError(t, err)
	assert.Equal(t, "4321ms", inside)
	assert.Equal(t, "4321ms", one[string](t, tx, `SHOW lock_timeout`))
	require.NoError(t, tx.Rollback(t.Context()))
}
