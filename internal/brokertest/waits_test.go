package brokertest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
)

// S14: a writer that is taken between two items, for longer than the lock timeout, makes nothing unknown: the item waits while its
// lease runs, and an item that it runs out for was not started.
func TestABusyWriterCostsNoItem(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"within the lease": time.Hour, "beyond it": lockTimeout} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sqlite(t)
			b := newBench(t, h, perItem, &broker.Config{ReplayWait: -1, Lease: lease})
			c := b.propose("a", "b", "c")
			busy := make(chan *sql.Tx, 1)
			res, err := b.ExecutePerItem(b.ctx, request(c), func(ctx context.Context, tx *sql.Tx, it broker.Item) (broker.Outcome, error) {
				if it.ID == "a" {
					go func() { // it waits for the writer, and gets it when this item is committed
						other, err := h.Begin(context.WithoutCancel(ctx))
						assert.NoError(t, err)
						time.AfterFunc(2*lockTimeout, func() { _ = h.Rollback(context.WithoutCancel(ctx), other) })
						busy <- other
					}()
					until(t, func() bool { return h.Store.(interface{ DB() *sql.DB }).DB().Stats().WaitCount > 0 })
				}
				return broker.Applied(""), b.Effect(ctx, tx, it.ID)
			})
			<-busy
			require.NoError(t, err)
			assert.Nil(t, res.Recovery(), "nothing is unknown")
			if lease > lockTimeout {
				assert.Equal(t, contract.Tally{Applied: 3}, res.Tally())
			} else {
				assert.Equal(t, contract.ReasonNotStarted, res.Outcomes[2].Reason)
			}
			assert.Equal(t, broker.Completed, b.phase(c))
		})
	}
}

// S14: so is a guard whose value is being changed.
func TestALockedGuardCostsNoItem(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	b := newBench(t, postgres(t, pool), perItem, nil)
	id := store.ValueID{Tenant: firmA, Name: "epoch"}
	swap := func(ctx context.Context, from int64) (pgx.Tx, error) {
		tx, err := b.Harness.Begin(ctx)
		if err == nil {
			_, err = b.Store.Values(tx).Swap(ctx, store.SwapParams{ValueID: id, Revision: from, Content: []byte("x")})
		}
		return tx, err
	}
	tx, err := swap(b.ctx, 0)
	require.NoError(t, err)
	require.NoError(t, b.Commit(b.ctx, tx))
	c := b.propose("a", "b", "c")
	req := request(c)
	req.Guards = []store.Guard{{Name: id.Name, Revision: 1}}
	done := make(chan error, 1)
	res, err := b.ExecutePerItem(b.ctx, req, func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
		if it.ID == "a" {
			ctx := context.WithoutCancel(ctx)
			go func() { // it is let in after this item
				other, err := swap(ctx, 1)
				time.Sleep(2 * lockTimeout) // there is no event: the lock timeout is what this is about
				done <- errors.Join(err, b.Rollback(ctx, other))
			}()
			until(t, func() bool { return blocked(t, pool) })
		}
		return broker.Applied(""), b.Effect(ctx, tx, it.ID)
	})
	require.NoError(t, <-done)
	require.NoError(t, err)
	assert.Nil(t, res.Recovery(), "nothing is unknown")
	assert.Equal(t, contract.Tally{Applied: 3}, res.Tally())
}

// S8, S13: a surface that cannot be read, perhaps because a first confirm has locked it, is no proof that nothing was done.
func TestAnUnreadableSurfaceProvesNothing(t *testing.T) {
	b := onPostgres(t)
	c := b.propose("a")
	running, goOn, first := make(chan struct{}), make(chan struct{}), make(chan answer, 1)
	go func() {
		res, err := b.ExecuteAtomic(b.ctx, broker.TxRequest[pgx.Tx]{Request: request(c)},
			func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
				err := b.Effect(ctx, tx, it.ID)
				close(running)
				<-goOn
				return broker.Applied(""), err
			})
		first <- answer{res, err}
	}()
	<-running
	_, err := b.ExecuteAtomic(b.ctx, broker.TxRequest[pgx.Tx]{Request: request(c),
		ReadSurface: func(context.Context, pgx.Tx) (contract.CurrentSurfaceState, error) {
			return contract.CurrentSurfaceState{}, errors.New("a lock timeout of the caller's own")
		}}, b.txExecutor(b.never))
	close(goOn)
	require.NoError(t, (<-first).err)
	require.Equal(t, 1, b.effects("a"))
	f, ok := contract.FailureOf(err)
	require.True(t, ok)
	assert.Equal(t, contract.Unavailable, f.Code)
	assert.False(t, f.KnownNoEffect())
}

// S8, S15: an executor that committed by itself, and whose caller has left, is not told as undone.
func TestACommitOfItsOwnAndACallerWhoLeaves(t *testing.T) {
	b := onPostgres(t)
	ctx, leave := context.WithCancel(b.ctx)
	_, err := b.ExecuteAtomic(ctx, broker.TxRequest[pgx.Tx]{Request: request(b.propose("a"))},
		func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			require.NoError(t, b.Effect(ctx, tx, it.ID))
			_, err := tx.Exec(ctx, `COMMIT`)
			require.NoError(t, err)
			leave()
			return broker.Applied(""), nil
		})
	require.Equal(t, 1, b.effects("a"))
	f, ok := contract.FailureOf(err)
	require.True(t, ok)
	assert.False(t, f.KnownNoEffect(), "%v", err)
}

// S31: no mode waits for a store without a bound, also when the caller has none.
func TestAWaitForTheStoreIsBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	one := db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	for _, mode := range []string{execute, perItem, atomically} {
		b := newBench(t, postgres(t, one), mode, &broker.Config{ReplayWait: -1, StoreTimeout: 200 * time.Millisecond})
		c := b.propose("a")
		conn, err := one.Acquire(t.Context())
		require.NoError(t, err)
		_, err = b.confirm(request(c), b.never)
		conn.Release()
		require.ErrorIs(t, err, contract.ErrUnavailable, mode)
	}
}

// S29, S11: a proposal that was purged has expired; cancelling it settles nothing and changes no later answer.
func TestCancelOfAPurgedProposal(t *testing.T) {
	b := newBench(t, sqlite(t), execute, &broker.Config{ReplayWait: -1, ProposalExpiry: time.Millisecond, PayloadRetention: time.Millisecond})
	c := b.propose("a")
	until(t, func() bool {
		n, err := b.Purge(b.ctx, broker.Page{Tenant: firmA})
		require.NoError(t, err)
		return n == 1
	})
	_, err := b.Cancel(b.ctx, firmA, c.IdempotencyKey)
	require.ErrorIs(t, err, contract.ErrExpired)
	_, err = b.confirm(request(c), b.never)
	require.ErrorIs(t, err, contract.ErrExpired)
}

// S29, S21: what an attempt says after its key was purged contradicts nothing: nobody knows any more what was told.
func TestALateWordAfterAPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory(), execute, &broker.Config{ReplayWait: -1, PayloadRetention: time.Millisecond})
		c := b.propose("a")
		late := make(chan struct{})
		res, err := b.confirm(request(c), func(context.Context, broker.Item, func(string) error) (broker.Outcome, error) {
			<-late
			return broker.Applied(""), nil
		})
		require.NoError(t, err)
		require.NotNil(t, res.Recovery())
		_, err = b.Resolve(b.ctx, resolution(c), func(context.Context, broker.Item) (broker.Verdict, error) {
			return broker.FoundApplied("", "seen"), nil
		})
		require.NoError(t, err)
		b.Advance(time.Hour)
		n, err := b.Purge(b.ctx, broker.Page{Tenant: firmA})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		close(late)
		synctest.Wait()
		open, err := b.ListUnresolved(b.ctx, broker.Page{Tenant: firmA})
		require.NoError(t, err)
		assert.Empty(t, open)
	})
}
