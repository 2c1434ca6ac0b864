package brokertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// nilError is an error whose text cannot be had of a nil one, as a careless return makes it.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// trapError is an error one of whose methods panics.
type trapError struct{ method string }

func (e *trapError) trap(method string) {
	if e.method == method {
		panic("boom")
	}
}

func (e *trapError) Error() string { e.trap("Error"); return "an error" }
func (e *trapError) Unwrap() error { e.trap("Unwrap"); return nil }
func (e *trapError) Is(error) bool { e.trap("Is"); return false }
func (e *trapError) As(any) bool   { e.trap("As"); return false }

// traps are errors that panic when they are looked at, by the name of the item that returns them.
func traps() map[string]error {
	all := map[string]error{"nil": (*nilError)(nil)}
	for _, method := range []string{"Error", "Unwrap", "Is", "As"} {
		all[method] = &trapError{method}
		if method != "Error" { // which wrapping has called
			all["wrapped "+method] = fmt.Errorf("call: %w", all[method])
		}
	}
	return all
}

var everyMode = []string{execute, perItem, inTx, atomically}

// S15: an executor's error that panics when it is looked at is like an executor that panics: it says nothing of its item, and
// does not keep the others from running nor the key from being completed.
func TestErrorsThatPanic(t *testing.T) {
	for _, mode := range everyMode {
		t.Run("memory "+mode, func(t *testing.T) {
			errorsThatPanic(t, mode, func(*testing.T) storetest.Harness[*memstore.Tx] { return memory() })
		})
		t.Run("PostgreSQL "+mode, func(t *testing.T) {
			db := pgtest.New(t)
			errorsThatPanic(t, mode, func(t *testing.T) storetest.Harness[pgx.Tx] { return postgres(t, db.Pool(t)) })
		})
	}
}

func errorsThatPanic[TTx any](t *testing.T, mode string, harness func(*testing.T) storetest.Harness[TTx]) {
	for name, trap := range traps() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, harness(t), mode, nil)
			c := b.propose("first "+name, "bad "+name, "last "+name)
			var res *contract.OperationResult
			var err error
			require.NotPanics(t, func() {
				res, err = b.confirm(request(c), func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
					out, err := apply(ctx, it, write)
					if it.Index == 1 {
						err = trap
					}
					return out, err
				})
			})
			require.NoError(t, err)
			bad := contract.Ambiguous
			if b.inDatabase() {
				bad = contract.Failed
			}
			assert.Equal(t, []contract.OutcomeState{contract.Applied, bad, contract.Applied}, states(res))
			if b.inDatabase() || !strings.Contains(name, "Is") { // which nobody asks of an error outside a transaction
				assert.Equal(t, contract.ReasonPanic, res.Outcomes[1].Reason)
			}
			if b.inDatabase() {
				assert.Equal(t, [3]int{1, 0, 1}, [3]int{b.effects("first " + name), b.effects("bad " + name), b.effects("last " + name)})
			}
			assert.Equal(t, broker.Completed, b.phase(c))
			again, err := b.confirm(request(c), b.never)
			require.NoError(t, err)
			assert.Equal(t, res.Outcomes, again.Outcomes)
		})
	}
}

// S21: a reader of the live system that returns such an error has not told.
func TestReadersErrorsThatPanic(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		b := newBench(t, h, execute, nil)
		for name, trap := range traps() {
			c := b.propose("bad", "good")
			b.crashed(c, short, "")
			b.Advance(2 * short)
			res, err := b.Resolve(b.ctx, resolution(c), func(_ context.Context, it broker.Item) (broker.Verdict, error) {
				if it.ID == "bad" {
					return broker.FoundApplied("", "not told"), trap
				}
				return broker.FoundAbsent("not there"), nil
			})
			require.NoError(t, err, name)
			assert.Equal(t, []contract.OutcomeState{contract.Ambiguous, contract.Failed}, states(res), name)
		}
	})
}

// S15: a reader of the surface that panics leaves no transaction of the broker's open.
func TestReaderOfTheSurfacePanics(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		onMemory(t, func(h storetest.Harness[*memstore.Tx]) { surfacePanics(newBench(t, h, atomically, nil)) })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		surfacePanics(newBench(t, postgres(t, pgtest.New(t).Pool(t, onlyConnection)), atomically, &broker.Config{ReplayWait: -1,
			StoreTimeout: 10 * time.Second}))
	})
}

func surfacePanics[TTx any](b *bench[TTx]) {
	c := b.propose("a")
	func() {
		defer func() { _ = recover() }() // it is for the caller to see
		_, err := b.ExecuteAtomic(b.ctx, broker.TxRequest[TTx]{Request: request(c),
			ReadSurface: func(context.Context, TTx) (contract.CurrentSurfaceState, error) { panic("boom") }}, b.txExecutor(b.never))
		require.Error(b, err)
	}()
	st, err := b.Lookup(b.ctx, firmA, c.IdempotencyKey)
	require.NoError(b, err, "the broker's transaction is still open")
	require.Equal(b, broker.Proposed, st.Phase)
	res, err := b.confirm(request(c), apply)
	require.NoError(b, err)
	assert.False(b, res.Replayed)
}

// S4: a confirm without an executor is a bad request, before anything is asked of the store.
func TestNoExecutor(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		uses := counting(&h)
		b := newBench(t, h, execute, nil)
		c := b.propose("a")
		tx, err := h.Begin(b.ctx)
		require.NoError(t, err)
		uses.Store(0)
		for mode, call := range map[string]func() (*contract.OperationResult, error){
			execute: func() (*contract.OperationResult, error) { return b.Execute(b.ctx, request(c), nil) },
			perItem: func() (*contract.OperationResult, error) { return b.ExecutePerItem(b.ctx, request(c), nil) },
			inTx: func() (*contract.OperationResult, error) {
				return b.ExecuteTx(b.ctx, tx, broker.TxRequest[*memstore.Tx]{Request: request(c)}, nil)
			},
			atomically: func() (*contract.OperationResult, error) {
				return b.ExecuteAtomic(b.ctx, broker.TxRequest[*memstore.Tx]{Request: request(c)}, nil)
			},
		} {
			_, err := call()
			var invalid *contract.InvalidError
			require.ErrorAs(t, err, &invalid, mode)
			assert.Equal(t, "/executor", invalid.Path)
		}
		assert.Zero(t, uses.Load())
		require.NoError(t, tx.Commit())
		assert.Equal(t, broker.Proposed, b.phase(c))
	})
}

// S32, S16: an item's key tells tenant and item apart also where their names run together, and is the same for every attempt.
func TestItemKeysDoNotRunTogether(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		b := newBench(t, h, execute, &broker.Config{ReplayWait: -1, AcceptUnmintedKeys: true})
		key := uuid.New()
		seen := map[uuid.UUID]string{}
		for _, c := range []struct{ tenant, item string }{{"firm", "a1"}, {"firma", "1"}, {"firma1", "x"}, {"fir", "ma1"}, {"f", "irma1"}} {
			confirmation := proposal(c.item).Confirmation(key)
			_, err := b.confirm(broker.Request{Tenant: c.tenant, Confirmation: confirmation, Current: fresh},
				func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
					assert.Empty(t, seen[it.IdempotencyKey], "also the key of %s of %s", c.item, c.tenant)
					seen[it.IdempotencyKey] = c.item + " of " + c.tenant
					return broker.Applied(""), nil
				})
			require.NoError(t, err)
		}
		assert.Len(t, seen, 5)
	})
}
