package brokertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// epoch is the value that guards name.
var epoch = store.ValueID{Tenant: firmA, Name: "epoch"}

// swap moves the epoch on from revision, in tx.
func (b *bench[TTx]) swap(ctx context.Context, tx TTx, revision int64) error {
	_, err := b.Store.Values(tx).Swap(ctx, store.SwapParams{ValueID: epoch, Revision: revision, Content: fmt.Append(nil, revision+1)})
	return err
}

// move moves the epoch on from revision, in a transaction of its own.
func (b *bench[TTx]) move(revision int64) error {
	tx, _, err := b.Store.Begin(b.ctx, store.Opening{ID: store.ID{Tenant: firmA}})
	if err != nil {
		return err
	}
	if err := b.swap(b.ctx, tx, revision); err != nil {
		return errors.Join(err, b.Store.Rollback(b.ctx, tx))
	}
	return b.Store.Commit(b.ctx, tx, store.Closing{})
}

// under is the request under the epoch of this revision.
func under(revision int64, req broker.Request) broker.Request {
	req.Guards = []store.Guard{{Name: epoch.Name, Revision: revision}}
	return req
}

func runGuards[TTx any](one func(mode, name string, fn func(*bench[TTx]))) {
	for _, mode := range []string{execute, perItem, inTx, atomically} {
		one(mode, "R112 R121 guards come before every answer", guardsComeFirst[TTx])
		one(mode, "S11 guards that cannot be checked are refused", guardsAreChecked[TTx])
		if mode != execute {
			one(mode, "R118 the epoch does not move under an effect", guardsHold[TTx])
		}
	}
	one(perItem, "R118 an item is not applied once the epoch has moved", guardsOfItems[TTx])
	for _, mode := range []string{inTx, atomically} {
		one(mode, "R121 guards come before the surface is read", guardsBeforeSurface[TTx])
	}
}

func guardsComeFirst[TTx any](b *bench[TTx]) {
	require.NoError(b, b.move(0))
	require.NoError(b, b.move(1))
	denying := b.with(broker.Config{ReplayWait: -1, Authorize: func(context.Context, broker.Access) error { return errors.New("no") }})
	never, proposed, done, crashed := b.propose("a"), b.propose("a"), b.propose("done"), b.propose("a")
	never.IdempotencyKey[0]++
	expired := b.with(broker.Config{ReplayWait: -1, ProposalExpiry: short}).propose("a")
	b.crashed(crashed, long, "a")
	res, err := b.confirm(under(2, request(done)), apply)
	require.NoError(b, err)
	require.NoError(b, res.Err())
	b.Advance(2 * short)
	stale := request(proposed)
	stale.Current = moved()
	for name, req := range map[string]broker.Request{
		"not minted": request(never), "proposed": request(proposed), "completed": request(done), "claimed": request(crashed),
		"expired": request(expired), "stale": stale, "other content": request(otherContent(done)),
	} {
		for _, revision := range []int64{1, 3} {
			for _, on := range []*bench[TTx]{b, denying} {
				_, err := on.confirm(under(revision, req), b.never)
				require.ErrorIs(b, err, contract.ErrGuardNotMet, name)
				f, _ := contract.FailureOf(err)
				assert.Equal(b, contract.Aborted, f.Code)
				assert.Equal(b, contract.EffectNone, f.Effect)
				assert.Equal(b, "guard_not_met", broker.AnswerOf(nil, err))
			}
		}
	}
	again, err := b.confirm(under(2, request(done)), b.never)
	require.NoError(b, err)
	assert.True(b, again.Replayed)
	_, err = b.confirm(under(2, stale), b.never)
	require.ErrorIs(b, err, contract.ErrStale)
	_, err = b.confirm(under(2, request(otherContent(done))), b.never)
	require.ErrorIs(b, err, contract.ErrKeyReused)
	res, err = b.confirm(under(2, request(proposed)), apply)
	require.NoError(b, err, "what was refused can still be confirmed")
	assert.Equal(b, []contract.OutcomeState{contract.Applied}, states(res))
}

func guardsAreChecked[TTx any](b *bench[TTx]) {
	require.NoError(b, b.move(0))
	c := b.propose("a")
	for _, guards := range [][]store.Guard{
		{{Name: "epoch"}}, {{Revision: 1}}, {{Name: "epoch", Revision: 1}, {Name: "epoch", Revision: 1}}, make([]store.Guard, store.MaxGuards+1),
	} {
		req := request(c)
		req.Guards = guards
		_, err := b.confirm(req, b.never)
		var invalid *contract.InvalidError
		require.ErrorAs(b, err, &invalid)
		assert.Contains(b, invalid.Path, "/guards")
	}
	assert.Equal(b, broker.Proposed, b.phase(c))
}

// guardsHold moves the epoch while an executor runs under it.
func guardsHold[TTx any](b *bench[TTx]) {
	require.NoError(b, b.move(0))
	c := b.propose("a")
	mover := make(chan error, 1)
	res, err := b.confirm(under(1, request(c)), func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
		go func() { mover <- b.move(1) }()
		select {
		case err := <-mover:
			return broker.Outcome{}, fmt.Errorf("the epoch moved under an effect: %w", err)
		case <-time.After(150 * time.Millisecond):
		}
		return apply(ctx, it, write)
	})
	require.NoError(b, err)
	require.NoError(b, res.Err())
	require.NoError(b, <-mover, "it moves once the effect is committed")
	assert.Equal(b, 1, b.effects("a"))
	_, err = b.confirm(under(1, request(c)), b.never)
	require.ErrorIs(b, err, contract.ErrGuardNotMet)
}

func guardsOfItems[TTx any](b *bench[TTx]) {
	require.NoError(b, b.move(0))
	c := b.propose("a", "b", "c")
	res, err := b.ExecutePerItem(b.ctx, under(1, request(c)), func(ctx context.Context, tx TTx, it broker.Item) (broker.Outcome, error) {
		require.Equal(b, "a", it.ID, "the only item that runs")
		return broker.Applied("ref"), errors.Join(b.Effect(ctx, tx, it.ID), b.swap(ctx, tx, 1))
	})
	require.NoError(b, err)
	assert.Equal(b, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Failed}, states(res))
	assert.Equal(b, contract.ReasonGuard, res.Outcomes[1].Reason)
	assert.Equal(b, 1, b.effects("a"))
	again, err := b.confirm(under(2, request(c)), b.never)
	require.NoError(b, err)
	assert.Equal(b, res.Outcomes, again.Outcomes)
}

func guardsBeforeSurface[TTx any](b *bench[TTx]) {
	require.NoError(b, b.move(0))
	req := broker.TxRequest[TTx]{
		Request: under(2, request(b.propose("a"))),
		ReadSurface: func(context.Context, TTx) (contract.CurrentSurfaceState, error) {
			b.Error("the surface must not be read")
			return fresh, nil
		},
	}
	exec := b.txExecutor(b.never)
	if b.mode == atomically {
		_, err := b.ExecuteAtomic(b.ctx, req, exec)
		require.ErrorIs(b, err, contract.ErrGuardNotMet)
		return
	}
	tx, err := b.Harness.Begin(b.ctx)
	require.NoError(b, err)
	_, err = b.ExecuteTx(b.ctx, tx, req, exec)
	require.ErrorIs(b, err, contract.ErrGuardNotMet)
	require.NoError(b, b.Effect(b.ctx, tx, "after"), "the transaction is usable")
	require.NoError(b, b.Commit(b.ctx, tx))
	assert.Equal(b, 1, b.effects("after"))
}

// R112, S12: guards cost no round trip.
func TestRoundTripsWithGuards(t *testing.T) {
	b, counter := counted(t, broker.Config{ReplayWait: -1})
	require.NoError(t, b.move(0))
	for mode, want := range map[string][3]int{ // at first, replayed, refused
		execute: {2, 1, 1}, perItem: {5, 1, 1}, inTx: {7, 3, 3}, atomically: {5, 2, 2},
	} {
		b.mode = mode
		var got [3]int
		for range 2 { // every statement once, so that none is prepared while trips are counted
			c := b.propose("a")
			got[0] = counter.During(func() {
				_, err := b.confirm(under(1, request(c)), apply)
				require.NoError(t, err)
			})
			got[1] = counter.During(func() {
				_, err := b.confirm(under(1, request(c)), b.never)
				require.NoError(t, err)
			})
			got[2] = counter.During(func() {
				_, err := b.confirm(under(2, request(c)), b.never)
				require.ErrorIs(t, err, contract.ErrGuardNotMet)
			})
		}
		assert.Equal(t, want, got, mode)
	}
}

// R112, S12: what a call about a value costs.
func TestRoundTripsOfValues(t *testing.T) {
	b, counter := counted(t, broker.Config{ReplayWait: -1})
	require.NoError(t, b.move(0))
	var tx pgx.Tx
	values := func() store.Values { return b.Store.Values(tx) }
	revision := int64(1)
	for _, c := range []struct {
		name string
		call func() error
		want error
	}{
		{"begin", func() (err error) {
			tx, _, err = b.Store.Begin(b.ctx, store.Opening{ID: store.ID{Tenant: firmA}})
			return err
		}, nil},
		{"load", func() error { _, err := values().Load(b.ctx, epoch); return err }, nil},
		{"hold", func() error { _, err := values().Hold(b.ctx, epoch); return err }, nil},
		{"swap", func() error { revision++; return b.swap(b.ctx, tx, revision-1) }, nil},
		{"stale swap", func() error { return b.swap(b.ctx, tx, 70) }, store.ErrRevision},
		{"make again", func() error { return b.swap(b.ctx, tx, 0) }, store.ErrRevision},
	} {
		call := func() { require.ErrorIs(t, c.call(), c.want, c.name) }
		if c.name != "begin" {
			call() // once, so that its statements are not prepared while trips are counted
		}
		assert.Equal(t, 1, counter.During(call), c.name)
	}
	assert.Equal(t, 1, counter.During(func() { require.NoError(t, b.Store.Commit(b.ctx, tx, store.Closing{})) }), "commit")
}

// R121, S12: a claim that was lost has perhaps not checked its guards: whoever does not hold the key is told of them before a replay.
func TestLostClaimUnderGuards(t *testing.T) {
	for _, after := range []bool{false, true} {
		f := &flaky{Store: memstore.New(nil), after: after}
		b := newBench(t, storetest.Harness[*memstore.Tx]{Store: f}, execute, nil)
		require.NoError(t, b.move(0))
		c, fresh := b.propose("a"), b.propose("a")
		_, err := b.confirm(under(1, request(c)), apply)
		require.NoError(t, err)
		lose := func() { f.fail = f.calls + 1 }
		lose()
		again, err := b.confirm(under(1, request(c)), b.never)
		require.NoError(t, err)
		assert.True(t, again.Replayed)
		lose()
		_, err = b.confirm(under(7, request(c)), b.never)
		require.ErrorIs(t, err, contract.ErrGuardNotMet)
		lose()
		res, err := b.confirm(under(1, request(fresh)), apply)
		if after {
			require.NoError(t, err)
			assert.False(t, res.Replayed)
		} else {
			require.ErrorIs(t, err, contract.ErrUnavailable, "not claimed, and not refused")
		}
	}
}
