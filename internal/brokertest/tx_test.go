package brokertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

func rollbackLeavesNothing[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b")
	tx, err := b.Harness.Begin(b.ctx)
	require.NoError(b, err)
	res, err := b.ExecuteTx(b.ctx, tx, broker.TxRequest[TTx]{Request: request(c)}, b.txExecutor(apply))
	require.NoError(b, err)
	assert.Equal(b, contract.Tally{Applied: 2}, res.Tally(), "provisional")
	require.NoError(b, b.Rollback(b.ctx, tx))
	assert.Equal(b, 0, b.effects("a")+b.effects("b"))
	assert.Equal(b, broker.Proposed, b.phase(c))

	res, err = b.confirm(request(c), apply)
	require.NoError(b, err)
	assert.False(b, res.Replayed, "nothing happened, so this is the first run")
	assert.Equal(b, 1, b.effects("a"))
}

func refusalLeavesUsable[TTx any](b *bench[TTx]) {
	done, free := b.propose("a"), b.propose("z")
	_, err := b.confirm(request(done), apply)
	require.NoError(b, err)
	never := done
	never.IdempotencyKey = uuid.New()
	stale := request(free)
	stale.Current = moved()

	tx, err := b.Harness.Begin(b.ctx)
	require.NoError(b, err)
	for _, req := range []broker.Request{request(done), request(otherContent(done)), request(never), stale} {
		_, _ = b.ExecuteTx(b.ctx, tx, broker.TxRequest[TTx]{Request: req}, func(context.Context, TTx, broker.Item) (broker.Outcome, error) {
			b.Error("the executor must not run")
			return broker.Outcome{}, nil
		})
		require.NoError(b, b.Effect(b.ctx, tx, "own write"))
	}
	_, err = b.ExecuteTx(b.ctx, tx, broker.TxRequest[TTx]{Request: request(free)}, b.txExecutor(apply))
	require.NoError(b, err)
	require.NoError(b, b.Commit(b.ctx, tx))
	assert.Equal(b, 4, b.effects("own write"))
	assert.Equal(b, 1, b.effects("z"))
}

func nothingToKeepIsUndone[TTx any](b *bench[TTx]) {
	c := b.propose("skipped", "good")
	res, err := b.confirm(request(c), func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
		out, err := apply(ctx, it, write)
		if it.ID == "skipped" {
			return broker.Skipped("it is there already"), nil
		}
		return out, err
	})
	require.NoError(b, err)
	require.NoError(b, res.Err(), "skipped by choice needs no attention")
	assert.Equal(b, []contract.OutcomeState{contract.Skipped, contract.Applied}, states(res))
	assert.Equal(b, 0, b.effects("skipped"))
}

func readSurface[TTx any](b *bench[TTx]) {
	var reads int
	request := func(c contract.OperationConfirmation, current contract.CurrentSurfaceState, err error) broker.TxRequest[TTx] {
		return broker.TxRequest[TTx]{
			Request: broker.Request{Tenant: firmA, Confirmation: c}, // Current would be stale
			ReadSurface: func(ctx context.Context, tx TTx) (contract.CurrentSurfaceState, error) {
				reads++
				require.NoError(b, b.Effect(ctx, tx, "read inside"))
				return current, err
			},
		}
	}
	run := func(req broker.TxRequest[TTx]) (*contract.OperationResult, error) {
		if b.mode == atomically {
			return b.ExecuteAtomic(b.ctx, req, b.txExecutor(apply))
		}
		tx, err := b.Harness.Begin(b.ctx)
		require.NoError(b, err)
		res, err := b.ExecuteTx(b.ctx, tx, req, b.txExecutor(apply))
		require.NoError(b, b.Commit(b.ctx, tx))
		return res, err
	}
	c := b.propose("a")
	_, err := run(request(c, contract.CurrentSurfaceState{}, errors.New("down")))
	require.ErrorIs(b, err, contract.ErrUnavailable, "never fresh by default")
	_, err = run(request(c, moved(), nil))
	require.ErrorIs(b, err, contract.ErrStale)
	assert.Equal(b, broker.Proposed, b.phase(c))
	_, err = run(request(c, fresh, nil))
	require.NoError(b, err)
	res, err := run(request(c, moved(), nil))
	require.NoError(b, err)
	assert.True(b, res.Replayed)
	assert.Equal(b, 3, reads, "a claimed key is answered without reading the surface")
	reads = 2 // what a reader that failed has written is undone
	if b.mode == atomically {
		reads = 1 // with the one that was committed
	}
	assert.Equal(b, reads, b.effects("read inside"), "the reader works in the transaction")
	assert.Equal(b, 1, b.effects("a"))
}

func tooManyItems[TTx any](b *bench[TTx]) {
	var ids []string
	for i := range broker.MaxTxItems {
		ids = append(ids, fmt.Sprint("item-", i))
	}
	res, err := b.confirm(request(b.propose(ids...)), apply)
	require.NoError(b, err)
	assert.Equal(b, contract.Tally{Applied: broker.MaxTxItems}, res.Tally())

	c := b.propose(append(ids, "one more")...)
	_, err = b.confirm(request(c), b.never)
	require.ErrorIs(b, err, contract.ErrInvalid)
	assert.Contains(b, err.Error(), "/items")
	assert.Equal(b, broker.Proposed, b.phase(c))
}
