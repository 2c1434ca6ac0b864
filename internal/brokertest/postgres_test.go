package brokertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
)

func onPostgres(t *testing.T) *bench[pgx.Tx] {
	t.Parallel()
	return newBench(t, postgres(t, pgtest.New(t).Pool(t)), inTx, nil)
}

func (b *bench[TTx]) executeIn(tx TTx, req broker.Request, exec executor) (*contract.OperationResult, error) {
	return b.ExecuteTx(b.ctx, tx, broker.TxRequest[TTx]{Request: req}, b.txExecutor(exec))
}

// S28a: a transaction that is bound to another tenant is refused, untouched and usable.
func TestForeignTransaction(t *testing.T) {
	b := onPostgres(t)
	c := b.propose("a")
	tx, err := b.Harness.Begin(b.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(b.ctx, `SELECT set_config('app.firm_id', $1, true)`, firmB)
	require.NoError(t, err)
	_, err = b.executeIn(tx, request(c), b.never)
	require.ErrorIs(t, err, contract.ErrTenantMismatch)
	code, _ := contract.CodeOf(err)
	assert.Equal(t, contract.PermissionDenied, code)
	require.NoError(t, b.Effect(b.ctx, tx, "own write"))
	require.NoError(t, b.Commit(b.ctx, tx))
	assert.Equal(t, broker.Proposed, b.phase(c))
}

// S12, S28a: no isolation level gives a wrong answer: what a snapshot cannot see is a transaction to run again.
func TestSnapshotOlderThanTheKey(t *testing.T) {
	b := onPostgres(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		begin := func() pgx.Tx {
			tx, err := b.Harness.Begin(b.ctx)
			require.NoError(t, err)
			_, err = tx.Exec(b.ctx, `SET TRANSACTION ISOLATION LEVEL `+string(level))
			require.NoError(t, err)
			require.NoError(t, b.Effect(b.ctx, tx, "snapshot taken"))
			return tx
		}
		tx := begin()
		c := b.propose("a")
		_, err := b.executeIn(tx, request(c), b.never)
		require.ErrorIs(t, err, contract.ErrRetryTx, "proposed after the snapshot")
		require.NoError(t, b.Rollback(b.ctx, tx))

		tx = begin()
		_, err = b.confirm(request(c), apply)
		require.NoError(t, err)
		_, err = b.executeIn(tx, request(c), b.never)
		require.ErrorIs(t, err, contract.ErrRetryTx, "claimed after the snapshot")
		require.NoError(t, b.Rollback(b.ctx, tx))

		tx = begin()
		res, err := b.executeIn(tx, request(c), b.never)
		require.NoError(t, err)
		assert.True(t, res.Replayed, "a new snapshot sees it")
		never := request(c)
		never.Confirmation.IdempotencyKey[0]++
		_, err = b.executeIn(tx, never, b.never)
		require.ErrorIs(t, err, contract.ErrNotMinted, "and nothing makes an unknown key known")
		require.NoError(t, b.Rollback(b.ctx, tx))
	}
}

// S15: an SQL error that an executor swallowed is failed with its first cause, never applied; the items around it stand.
func TestSwallowedSQLError(t *testing.T) {
	b := onPostgres(t)
	c := b.propose("a", "b", "c")
	tx, err := b.Harness.Begin(b.ctx)
	require.NoError(t, err)
	res, err := b.ExecuteTx(b.ctx, tx, broker.TxRequest[pgx.Tx]{Request: request(c)},
		func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			require.NoError(t, b.Effect(ctx, tx, it.ID))
			if it.ID == "b" {
				_, _ = tx.Exec(ctx, `SELECT 1/0`)
			}
			return broker.Applied(it.ID), nil
		})
	require.NoError(t, err)
	require.NoError(t, b.Commit(b.ctx, tx))
	assert.Equal(t, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Applied}, states(res))
	assert.Equal(t, contract.ReasonRolledBack, res.Outcomes[1].Reason)
	assert.Contains(t, res.Outcomes[1].Detail, "SQLSTATE 22012")
	assert.Empty(t, res.Outcomes[1].Ref)
	assert.Equal(t, [3]int{1, 0, 1}, [3]int{b.effects("a"), b.effects("b"), b.effects("c")})
}

// A serialization failure inside an item is never an outcome: the caller gets its transaction back.
func TestSerializationFailureIsNoOutcome(t *testing.T) {
	b := onPostgres(t)
	c := b.propose("a")
	_, err := b.confirm(request(c), func(context.Context, broker.Item, func(string) error) (broker.Outcome, error) {
		return broker.Applied(""), nil
	})
	require.NoError(t, err)
	for _, state := range []string{"40001", "40P01"} {
		c := b.propose("a", "b")
		tx, err := b.Harness.Begin(b.ctx)
		require.NoError(t, err)
		_, err = b.ExecuteTx(b.ctx, tx, broker.TxRequest[pgx.Tx]{Request: request(c)},
			func(ctx context.Context, tx pgx.Tx, _ broker.Item) (broker.Outcome, error) {
				_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '`+state+`'; END $$`)
				return broker.Applied(""), err
			})
		require.ErrorIs(t, err, contract.ErrRetryTx)
		require.NoError(t, b.Rollback(b.ctx, tx))
		assert.Equal(t, broker.Proposed, b.phase(c))
	}
}

// An executor that ends the transaction is told so, and the key can no longer run.
func TestExecutorEndsTransaction(t *testing.T) {
	b := onPostgres(t)
	c := b.propose("a")
	tx, err := b.Harness.Begin(b.ctx)
	require.NoError(t, err)
	_, err = b.ExecuteTx(b.ctx, tx, broker.TxRequest[pgx.Tx]{Request: request(c)},
		func(ctx context.Context, tx pgx.Tx, _ broker.Item) (broker.Outcome, error) {
			_, err := tx.Exec(ctx, `COMMIT`)
			return broker.Applied(""), err
		})
	require.ErrorIs(t, err, contract.ErrTxEnded)
	_ = b.Rollback(b.ctx, tx)
	_, err = b.confirm(request(c), b.never)
	require.ErrorIs(t, err, contract.ErrInProgress, "the claim was committed with it and stands for its lease")
}

// S19, S13: a confirm that must not claim - the surface moved, or the proposal expired - waits for a first one that is under
// way instead of contradicting it.
func TestRefusalsLookBehindTheBarrier(t *testing.T) {
	for _, name := range []string{"stale", "expired"} {
		t.Run(name, func(t *testing.T) {
			b := onPostgres(t)
			brief := b.with(broker.Config{ReplayWait: -1, ProposalExpiry: expiry})
			c := brief.propose("a")
			first, err := b.Harness.Begin(b.ctx)
			require.NoError(t, err)
			_, err = b.executeIn(first, request(c), apply)
			require.NoError(t, err)
			req := request(c)
			if name == "stale" {
				req.Current = moved()
			} else {
				b.Advance(expiry)
			}
			done := make(chan string, 1)
			go func() { done <- broker.AnswerOf(b.confirm(req, b.never)) }()
			waitForLock(b)
			require.NoError(t, b.Commit(b.ctx, first))
			assert.Equal(t, "replayed", <-done)
		})
	}
}

// waitForLock returns when a connection waits for another's lock.
func waitForLock(b *bench[pgx.Tx]) {
	b.Helper()
	require.Eventually(b, func() bool {
		tx, err := b.Harness.Begin(b.ctx)
		require.NoError(b, err)
		defer func() { _ = b.Rollback(b.ctx, tx) }()
		var n int
		require.NoError(b, tx.QueryRow(b.ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&n))
		return n > 0
	}, 10*time.Second, 5*time.Millisecond)
}

// S28a: while another transaction holds the key for longer than the lock timeout the answer is in progress.
func TestKeyHeldByAnotherTransaction(t *testing.T) {
	b := onPostgres(t)
	c := b.propose("a")
	first, err := b.Harness.Begin(b.ctx)
	require.NoError(t, err)
	_, err = b.executeIn(first, request(c), apply)
	require.NoError(t, err)
	for _, mode := range []string{execute, perItem, inTx, atomically} {
		b.mode = mode
		_, err = b.confirm(request(c), b.never)
		require.ErrorIs(t, err, contract.ErrInProgress)
	}
	require.NoError(t, b.Rollback(b.ctx, first))
	res, err := b.confirm(request(c), apply)
	require.NoError(t, err)
	assert.False(t, res.Replayed)
}

// A database that cannot be reached is UNAVAILABLE, nothing runs, and the driver's text stays in the cause.
func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	b := newBench(t, postgres(t, pool), execute, nil)
	c := b.propose("a")
	pool.Close()
	_, err := b.confirm(request(c), b.never)
	require.ErrorIs(t, err, contract.ErrUnavailable)
	assert.NotContains(t, err.Error(), "pool")
	require.Error(t, errors.Unwrap(err))
	_, err = b.Lookup(b.ctx, firmA, c.IdempotencyKey)
	require.ErrorIs(t, err, contract.ErrUnavailable)
	_, err = b.Propose(b.ctx, firmA, proposal("a"))
	require.ErrorIs(t, err, contract.ErrUnavailable)
}
