package brokertest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// endings are what an executor may say after it has ended the transaction that it was lent.
var endings = map[string]func() (broker.Outcome, error){
	"applied":          func() (broker.Outcome, error) { return broker.Applied(""), nil },
	"skipped":          func() (broker.Outcome, error) { return broker.Skipped("no"), nil },
	"an error":         func() (broker.Outcome, error) { return broker.Outcome{}, errors.New("late") },
	"a definite error": func() (broker.Outcome, error) { return broker.Outcome{}, broker.NotApplied(errors.New("late")) },
	"a panic":          func() (broker.Outcome, error) { panic("late") },
}

// S8, S15: an item whose executor committed by itself is not called undone, whatever the executor says of it.
func TestAnItemThatCommittedByItself(t *testing.T) {
	b := onPostgres(t)
	for name, say := range endings {
		for _, end := range []string{"COMMIT", "COMMIT; BEGIN"} {
			before := b.effects("a")
			res, err := b.ExecutePerItem(b.ctx, request(b.propose("a", "b")),
				func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
					if it.ID == "b" {
						return broker.Applied(""), nil
					}
					require.NoError(t, b.Effect(ctx, tx, it.ID))
					_, err := tx.Exec(ctx, end)
					require.NoError(t, err)
					return say()
				})
			require.NoError(t, err, name)
			assert.Equal(t, []contract.OutcomeState{contract.Ambiguous, contract.Applied}, states(res), name)
			assert.Equal(t, contract.ReasonTxEnded, res.Outcomes[0].Reason, name)
			assert.Equal(t, before+1, b.effects("a"), name)
		}
	}
}

// uses are the ways to write through a transaction of PostgreSQL's, and to go on with it.
var uses = map[string]func(context.Context, pgx.Tx) error{
	"Exec": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, lateWrite); return err },
	"Query": func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, lateWrite)
		rows.Close()
		return errors.Join(err, rows.Err())
	},
	"QueryRow": func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, lateWrite+" RETURNING name").Scan(nil)
	},
	"SendBatch": func(ctx context.Context, tx pgx.Tx) error { return tx.SendBatch(ctx, lateBatch()).Close() },
	"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"name"}, pgx.CopyFromRows([][]any{{"late"}}))
		return err
	},
	"Begin":    func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
	"Commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	"Rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	"Prepare":  func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Prepare(ctx, "late", "SELECT 1"); return err },
}

const lateWrite = `INSERT INTO effect (name) VALUES ('late')`

func lateBatch() *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue(lateWrite)
	return batch
}

// S15, S32: the transaction that an executor was lent, and one that it nested in it, are closed to it once it has returned: what it
// kept writes into no other item, nor beside the operation.
func TestATransactionThatAnExecutorKept(t *testing.T) {
	b := onPostgres(t)
	for _, mode := range []string{perItem, inTx, atomically} {
		for said, say := range endings {
			var kept []pgx.Tx
			refused := func(ctx context.Context) {
				for _, tx := range kept {
					for name, use := range uses {
						assert.ErrorIs(t, use(ctx, tx), pgx.ErrTxClosed, "%s, %s: %s", mode, said, name)
					}
				}
			}
			exec := func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
				refused(ctx)
				if it.ID == "b" {
					return broker.Applied(""), nil
				}
				nested, err := tx.Begin(ctx)
				require.NoError(t, err)
				kept = append(kept, tx, nested)
				return say()
			}
			c := b.propose("a", "b")
			var res *contract.OperationResult
			var err error
			switch mode {
			case perItem:
				res, err = b.ExecutePerItem(b.ctx, request(c), exec)
			case atomically:
				res, err = b.ExecuteAtomic(b.ctx, broker.TxRequest[pgx.Tx]{Request: request(c)}, exec)
			default:
				var tx pgx.Tx
				tx, err = b.Begin(b.ctx)
				require.NoError(t, err)
				res, err = b.ExecuteTx(b.ctx, tx, broker.TxRequest[pgx.Tx]{Request: request(c)}, exec)
				require.NoError(t, tx.Commit(b.ctx))
			}
			require.NoError(t, err, mode)
			assert.Equal(t, contract.Applied, res.Outcomes[1].State, "%s, %s: the other item", mode, said)
			refused(b.ctx)
		}
	}
	assert.Equal(t, 0, b.effects("late"))
}

// S8, S15: an operation whose executor committed by itself is told as ended, whatever the executor met or said after that: not as one of
// which nothing was done, and not as one to run again.
func TestAnOperationThatCommittedByItself(t *testing.T) {
	b := onPostgres(t)
	for met, after := range map[string]func(tx pgx.Tx, leave func()){
		"nothing":                 func(pgx.Tx, func()) {},
		"the end of its context":  func(_ pgx.Tx, leave func()) { leave() },
		"a serialization failure": func(tx pgx.Tx, _ func()) { _, _ = tx.Exec(b.ctx, sqlState("40001")) },
	} {
		for said, say := range endings {
			for _, mode := range []string{atomically, inTx} {
				before := b.effects("a")
				c := b.propose("a")
				ctx, leave := context.WithCancel(b.ctx)
				calls := 0
				req := broker.TxRequest[pgx.Tx]{Request: request(c)}
				exec := func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
					calls++
					require.NoError(t, b.Effect(ctx, tx, it.ID))
					_, err := tx.Exec(ctx, `COMMIT`)
					require.NoError(t, err)
					after(tx, leave)
					return say()
				}
				var err error
				if mode == atomically {
					_, err = b.ExecuteAtomic(ctx, req, exec)
				} else {
					tx, beginErr := b.Begin(b.ctx)
					require.NoError(t, beginErr)
					_, err = b.ExecuteTx(ctx, tx, req, exec)
					_ = tx.Rollback(b.ctx)
				}
				leave()
				require.ErrorIs(t, err, contract.ErrTxEnded, "%s, %s, %s", mode, met, said)
				failure, _ := contract.FailureOf(err)
				assert.False(t, failure.KnownNoEffect(), "%s, %s, %s", mode, met, said)
				assert.Equal(t, 1, calls, "%s, %s, %s", mode, met, said)
				assert.Equal(t, before+1, b.effects("a"), "%s, %s, %s", mode, met, said)
			}
		}
	}
}

// S12, S28a: an item that fails as its caller leaves is undone in the caller's transaction too; in one of the broker's nothing is left.
func TestCallerLeavesAnItemThatFails(t *testing.T) {
	b := onPostgres(t)
	c := b.propose("a", "b")
	var leave context.CancelFunc
	exec := func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
		require.Equal(t, "a", it.ID, "the only item that runs")
		require.NoError(t, b.Effect(ctx, tx, it.ID))
		leave()
		return broker.Outcome{}, ctx.Err()
	}
	ctx, cancel := context.WithCancel(b.ctx)
	leave = cancel
	tx, err := b.Begin(b.ctx)
	require.NoError(t, err)
	_, err = b.ExecuteTx(ctx, tx, broker.TxRequest[pgx.Tx]{Request: request(c)}, exec)
	require.ErrorIs(t, err, contract.ErrUnavailable)
	var n int
	require.NoError(t, tx.QueryRow(b.ctx, `SELECT count(*) FROM effect`).Scan(&n))
	assert.Equal(t, 0, n)
	require.NoError(t, b.Rollback(b.ctx, tx))

	ctx, cancel = context.WithCancel(b.ctx)
	leave = cancel
	_, err = b.ExecuteAtomic(ctx, broker.TxRequest[pgx.Tx]{Request: request(c)}, exec)
	failure, ok := contract.FailureOf(err)
	require.True(t, ok)
	assert.True(t, failure.KnownNoEffect(), "%v", err)
	assert.Equal(t, broker.Proposed, b.phase(c))
}

// S28a: on SQLite nothing is committed by an executor: not the transaction that it was lent, and not statement by statement after
// SQLite has rolled it back, as it does with a write that a context interrupts.
func TestAnExecutorCannotCommitOnSQLite(t *testing.T) {
	t.Parallel()
	interrupted := func(ctx context.Context, tx *sql.Tx) {
		brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err := tx.ExecContext(brief, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) INSERT INTO effect SELECT 'many' FROM n`)
		assert.Error(t, err)
	}
	text := func(query string) func(context.Context, *sql.Tx) {
		return func(ctx context.Context, tx *sql.Tx) { _, _ = tx.ExecContext(ctx, query) }
	}
	for name, ends := range map[string]func(context.Context, *sql.Tx){
		"interrupted": interrupted, "commit": text("COMMIT"), "rollback": text("ROLLBACK"),
		"commit and begin": text("COMMIT; BEGIN"), "rollback and begin": text("ROLLBACK; BEGIN"),
		"by the handle":      func(_ context.Context, tx *sql.Tx) { _ = tx.Commit() },
		"back by the handle": func(_ context.Context, tx *sql.Tx) { _ = tx.Rollback() },
	} {
		for said, say := range endings {
			t.Run(name+" and "+said, func(t *testing.T) {
				b := newBench(t, sqlite(t), perItem, nil)
				exec := func(ctx context.Context, tx *sql.Tx, it broker.Item) (broker.Outcome, error) {
					require.NoError(t, b.Effect(ctx, tx, it.ID))
					ends(ctx, tx)
					_ = b.Effect(ctx, tx, it.ID)
					return say()
				}
				res, err := b.ExecutePerItem(b.ctx, request(b.propose("a")), exec)
				require.NoError(t, err)
				assert.NotEqual(t, contract.Applied, res.Outcomes[0].State)
				assert.Equal(t, 0, b.effects("a"))
				res, err = b.ExecuteAtomic(b.ctx, broker.TxRequest[*sql.Tx]{Request: request(b.propose("a"))}, exec)
				if err == nil {
					assert.NotEqual(t, contract.Applied, res.Outcomes[0].State)
				}
				assert.Equal(t, 0, b.effects("a"))
				inTheirs := b.propose("a")
				tx, err := b.Harness.Begin(b.ctx)
				require.NoError(t, err)
				_, err = b.ExecuteTx(b.ctx, tx, broker.TxRequest[*sql.Tx]{Request: request(inTheirs)}, exec)
				require.Error(t, err)
				_ = b.Rollback(b.ctx, tx)
				assert.Equal(t, 0, b.effects("a"))
				assert.Equal(t, broker.Proposed, b.phase(inTheirs))
				own := b.propose("b")
				res, err = b.confirm(request(own), apply)
				require.NoError(t, err, "the store goes on")
				assert.Equal(t, contract.Tally{Applied: 1}, res.Tally())
			})
		}
	}
}
