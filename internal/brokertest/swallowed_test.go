package brokertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
)

// middle runs three items in a caller's transaction, of which only the middle one does what fn does.
func middle(b *bench[pgx.Tx], fn func(context.Context, pgx.Tx) error) (c contract.OperationConfirmation, tx pgx.Tx, a answer) {
	b.Helper()
	c = b.propose("a", "b", "c")
	tx, err := b.Begin(b.ctx)
	require.NoError(b, err)
	b.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.ctx)) })
	a.res, a.err = b.ExecuteTx(b.ctx, tx, broker.TxRequest[pgx.Tx]{Request: request(c)},
		func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			err := b.Effect(ctx, tx, it.ID)
			if it.ID == "b" && err == nil {
				err = fn(ctx, tx)
			}
			return broker.Applied("ref/" + it.ID), err
		})
	return c, tx, a
}

// handled is an SQL error that an executor meets and undoes by itself.
func handled(ctx context.Context, tx pgx.Tx, state string) {
	_, _ = tx.Exec(ctx, `SAVEPOINT mine`)
	_, _ = tx.Exec(ctx, sqlState(state))
	_, _ = tx.Exec(ctx, `ROLLBACK TO SAVEPOINT mine`)
}

// S15: an SQL error that an executor swallowed is its item's failure, with the first cause, whatever the database calls it: a
// lock that was not there is not the key's, and a savepoint that was not there is not the transaction's end.
func TestSwallowedErrorsOfTheItem(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := newBench(t, postgres(t, db.Pool(t)), inTx, nil)
	other, err := b.Begin(b.ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Rollback(context.WithoutCancel(b.ctx)) })
	_, err = other.Exec(b.ctx, `SELECT pg_advisory_xact_lock(7)`)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		cause string
		fn    func(ctx context.Context, tx pgx.Tx)
	}{
		"a lock timeout": {"55P03", func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Exec(ctx, `SET LOCAL lock_timeout = '50ms'`)
			_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(7)`)
			assert.Error(t, err)
		}},
		"NOWAIT":       {"55P03", func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, sqlState("55P03")) }},
		"no savepoint": {"3B001", func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, `ROLLBACK TO SAVEPOINT nowhere`) }},
		"in a nested transaction": {"22012", func(ctx context.Context, tx pgx.Tx) {
			nested, err := tx.Begin(ctx)
			require.NoError(t, err)
			_, _ = nested.Exec(ctx, `SELECT 1/0`)
		}},
		"a lock in a nested transaction": {"55P03", func(ctx context.Context, tx pgx.Tx) {
			nested, err := tx.Begin(ctx)
			require.NoError(t, err)
			_ = nested.QueryRow(ctx, `SELECT pg_advisory_xact_lock(7) FROM set_config('lock_timeout', '50ms', true)`).Scan(nil)
			_, _ = nested.Exec(ctx, sqlState("22012"))
		}},
		"no transaction": {"25P01", func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, sqlState("25P01")) }},
	} {
		before := [3]int{b.effects("a"), b.effects("b"), b.effects("c")}
		key, tx, a := middle(b, func(ctx context.Context, tx pgx.Tx) error {
			c.fn(ctx, tx)
			return nil
		})
		require.NoError(t, a.err, name)
		require.NoError(t, b.Commit(b.ctx, tx), name)
		assert.Equal(t, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Applied}, states(a.res), name)
		assert.Equal(t, contract.ReasonRolledBack, a.res.Outcomes[1].Reason, name)
		assert.Contains(t, a.res.Outcomes[1].Detail, c.cause, name)
		assert.Empty(t, a.res.Outcomes[1].Ref, name)
		assert.Equal(t, [3]int{before[0] + 1, before[1], before[2] + 1}, [3]int{b.effects("a"), b.effects("b"), b.effects("c")}, name)
		assert.Equal(t, broker.Completed, b.phase(key), name)
	}
}

// S15: the same errors, returned, are their item's failure too, and the rest goes on.
func TestReturnedErrorsOfTheItem(t *testing.T) {
	b := onPostgres(t)
	for _, state := range []string{"55P03", "3B001", "25P01", "25P02", "22012"} {
		for name, fn := range map[string]func(context.Context, pgx.Tx) error{
			"raised": func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, sqlState(state))
				return err
			},
			"made up": func(context.Context, pgx.Tx) error { return &pgconn.PgError{Code: state} },
		} {
			key, tx, a := middle(b, fn)
			require.NoError(t, a.err, "%s %s", state, name)
			require.NoError(t, b.Commit(b.ctx, tx), "%s %s", state, name)
			assert.Equal(t, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Applied}, states(a.res), "%s %s", state, name)
			assert.Contains(t, a.res.Outcomes[1].Detail, state, name)
			assert.Equal(t, broker.Completed, b.phase(key))
		}
	}
}

// S12: a serialization failure or a deadlock that an executor swallowed is the transaction's, wherever and whenever it met it.
func TestSwallowedErrorsOfTheTransaction(t *testing.T) {
	b := onPostgres(t)
	for _, state := range []string{"40001", "40P01"} {
		for name, fn := range map[string]func(context.Context, pgx.Tx) error{
			"swallowed": func(ctx context.Context, tx pgx.Tx) error {
				_, _ = tx.Exec(ctx, sqlState(state))
				return nil
			},
			"in a nested transaction": func(ctx context.Context, tx pgx.Tx) error {
				nested, err := tx.Begin(ctx)
				require.NoError(t, err)
				_, _ = nested.Exec(ctx, sqlState(state))
				return nil
			},
			"two transactions deep": func(ctx context.Context, tx pgx.Tx) error {
				nested, err := tx.Begin(ctx)
				require.NoError(t, err)
				nested, err = nested.Begin(ctx)
				require.NoError(t, err)
				rows, _ := nested.Query(ctx, sqlState(state), pgx.QueryExecModeSimpleProtocol)
				rows.Close()
				return nil
			},
			"after an error that was handled": func(ctx context.Context, tx pgx.Tx) error {
				handled(ctx, tx, "23505")
				_, _ = tx.Exec(ctx, sqlState(state))
				return nil
			},
			"before another error": func(ctx context.Context, tx pgx.Tx) error {
				_, _ = tx.Exec(ctx, sqlState(state))
				_, _ = tx.Exec(ctx, `SELECT 1`)
				return nil
			},
			"after an error in a nested transaction": func(ctx context.Context, tx pgx.Tx) error {
				nested, err := tx.Begin(ctx)
				require.NoError(t, err)
				_, _ = nested.Exec(ctx, `SELECT 1/0`)
				require.NoError(t, nested.Rollback(ctx))
				_, _ = tx.Exec(ctx, sqlState(state))
				return nil
			},
			"returned from a nested transaction": func(ctx context.Context, tx pgx.Tx) error {
				return pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
					_, err := nested.Exec(ctx, sqlState(state))
					return fmt.Errorf("saving: %w", err)
				})
			},
			"joined with another error": func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, sqlState(state))
				return errors.Join(errors.New("saving"), err)
			},
		} {
			key, tx, a := middle(b, fn)
			require.ErrorIs(t, a.err, contract.ErrRetryTx, "%s %s", state, name)
			require.NoError(t, b.Rollback(b.ctx, tx))
			assert.Equal(t, broker.Proposed, b.phase(key))
		}
	}
}

// S12: one that an executor hides behind an error or a panic of its own is the transaction's all the same: the item would have
// gone through had it been run again.
func TestHiddenErrorsOfTheTransaction(t *testing.T) {
	b := onPostgres(t)
	for name, hide := range map[string]func() error{
		"an error of its own": func() error { return errors.New("could not be saved") },
		"a definite error":    func() error { return broker.NotApplied(errors.New("could not be saved")) },
		"a panic":             func() error { panic("could not be saved") },
	} {
		key, tx, a := middle(b, func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, sqlState("40001"))
			return hide()
		})
		assert.ErrorIs(t, a.err, contract.ErrRetryTx, name)
		require.NoError(t, b.Rollback(b.ctx, tx))
		assert.Equal(t, broker.Proposed, b.phase(key))

		for _, mode := range []string{perItem, atomically} {
			own := newBench(t, b.Harness, mode, nil)
			fails := 1
			exec := func(ctx context.Context, tx pgx.Tx, _ broker.Item) (broker.Outcome, error) {
				if fails--; fails >= 0 {
					_, _ = tx.Exec(ctx, sqlState("40001"))
					return broker.Outcome{}, hide()
				}
				return broker.Applied(""), nil
			}
			var res *contract.OperationResult
			var err error
			if mode == perItem {
				res, err = own.ExecutePerItem(b.ctx, request(b.propose("a")), exec)
			} else {
				res, err = own.ExecuteAtomic(b.ctx, broker.TxRequest[pgx.Tx]{Request: request(b.propose("a"))}, exec)
			}
			require.NoError(t, err, "%s %s", mode, name)
			assert.Equal(t, contract.Tally{Applied: 1}, res.Tally(), "%s %s: it is run again", mode, name)
		}
	}
}
