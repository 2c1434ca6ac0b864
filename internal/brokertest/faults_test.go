package brokertest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// flaky is a store whose n-th own write ends without an answer, before or after it was made, and whose way stays closed for
// as many calls after it as down says.
type flaky struct {
	store.Store[*memstore.Tx]
	fail  int  // the number of the call that fails, from 1
	after bool // the write was made
	down  int  // further calls that fail
	calls int
	fired bool
}

func (f *flaky) Own() store.Claims { return flakyClaims{f.Store.Own(), f} }

type flakyClaims struct {
	store.Claims
	f *flaky
}

var errLost = &store.Error{Op: "flaky", Cause: errors.New("connection reset")}

// call makes one call on the store, or loses it.
func call[T any](f *flaky, fn func() (T, error)) (T, error) {
	f.calls++
	var none T
	if f.calls < f.fail || f.calls > f.fail+f.down {
		return fn()
	}
	f.fired = true
	if f.after && f.calls == f.fail {
		_, _ = fn()
	}
	return none, errLost
}

func (c flakyClaims) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	return call(c.f, func() (store.Standing, error) { return c.Claims.Claim(ctx, p) })
}

func (c flakyClaims) Lookup(ctx context.Context, p store.LookupParams) (store.Standing, error) {
	return call(c.f, func() (store.Standing, error) { return c.Claims.Lookup(ctx, p) })
}

func (c flakyClaims) Progress(ctx context.Context, p store.ProgressParams) error {
	_, err := call(c.f, func() (int, error) { return 0, c.Claims.Progress(ctx, p) })
	return err
}

func (c flakyClaims) Complete(ctx context.Context, p store.CompleteParams) error {
	_, err := call(c.f, func() (int, error) { return 0, c.Claims.Complete(ctx, p) })
	return err
}

// S14, S12: whichever of Execute's own calls is lost, before or after it was made, and however long the store stays away:
// no executor runs twice, no item is told applied that a later confirm tells otherwise, and nothing but reading follows.
func TestLostStoreCalls(t *testing.T) {
	fired := 0
	for _, after := range []bool{false, true} {
		for down := range 4 {
			for n := 1; ; n++ {
				f := &flaky{Store: memstore.New(nil), fail: n, after: after, down: down}
				b := newBench(t, storetest.Harness[*memstore.Tx]{Store: f}, execute, &broker.Config{ReplayWait: -1})
				c := b.propose("a", "b", "c")
				ran := map[string]int{}
				first, err := b.confirm(request(c), func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
					ran[it.ID]++
					return broker.Applied(it.ID), nil
				})
				if !f.fired {
					require.NoError(t, err)
					break
				}
				fired++
				f.fail, f.down = f.calls+1000, 0 // the store is back
				checkAfterLoss(b, c, first, err, ran)
			}
		}
	}
	assert.Equal(t, 2*4*4, fired, "two ways to lose each of four calls, with four lengths of outage")
}

func checkAfterLoss[TTx any](b *bench[TTx], c contract.OperationConfirmation, first *contract.OperationResult, err error, ran map[string]int) {
	b.Helper()
	if err != nil {
		require.ErrorIs(b, err, contract.ErrUnavailable)
		require.Empty(b, ran, "an error after items have run would hide them")
	}
	before := len(ran)
	second, err := b.confirm(request(c), func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
		ran[it.ID]++
		require.Zero(b, before, "the executor must not run again")
		return broker.Applied(it.ID), nil
	})
	for id, n := range ran {
		assert.Equal(b, 1, n, "calls for item %s", id)
	}
	switch {
	case first == nil: // the first confirm did nothing: the second one runs, or the lost claim stands for its lease
		if err != nil {
			require.ErrorIs(b, err, contract.ErrInProgress)
		}
	case first.Recovery() == nil:
		require.NoError(b, err)
		assert.Equal(b, first.Outcomes, second.Outcomes, "what was told stays told")
	case err != nil: // told ambiguous; within the lease the key is still in progress
		require.ErrorIs(b, err, contract.ErrInProgress)
	}
}
