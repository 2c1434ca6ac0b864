package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/confirmexec/confirmexec/store"
)

// RunBenchmarks measures a store: what a proposal, a claim with its completion, a replay, a lookup behind the barrier and
// a transaction with three items cost in time and allocations. newHarness is called once for each benchmark, as in [Run].
func RunBenchmarks[TTx any](b *testing.B, newHarness func(b *testing.B) Harness[TTx]) {
	on := func(one func(r *runner[TTx]) func() error) func(*testing.B) {
		return func(b *testing.B) {
			h := newHarness(b)
			r := &runner[TTx]{Harness: h, ctx: b.Context(), own: h.Store.Own()}
			call := one(r)
			b.ReportAllocs()
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("propose", on((*runner[TTx]).propose))
	b.Run("claim and complete", on((*runner[TTx]).claimAndComplete))
	b.Run("replay", on((*runner[TTx]).replay))
	b.Run("lookup behind the barrier", on((*runner[TTx]).lookup))
	b.Run("transaction with 3 items", on((*runner[TTx]).transaction))
}

// runner is one benchmark's store. Its methods prepare what they measure and return one round of it.
type runner[TTx any] struct {
	Harness[TTx]
	ctx context.Context
	own store.Claims
}

// stored is what a round's content and outcomes look like: 500 bytes.
var stored = everyByte(500)

func (r *runner[TTx]) propose() func() error {
	return func() error {
		return r.own.Propose(r.ctx, store.ProposeParams{ID: newID(), Digest: digestOf("a"), Content: stored, Expiry: long})
	}
}

// take claims a fresh key through c.
func (r *runner[TTx]) take(c store.Claims) (store.Fenced, error) {
	p := attempt(newID())
	p.AcceptUnminted, p.Content = true, stored
	s, err := c.Claim(r.ctx, p)
	if err == nil && !won(s, p) {
		err = fmt.Errorf("a fresh key was not won: %s", show(s))
	}
	if err != nil {
		return store.Fenced{}, err
	}
	return store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: s.Claim.Fence}, nil
}

func (r *runner[TTx]) finish(c store.Claims) (store.Fenced, error) {
	f, err := r.take(c)
	if err != nil {
		return f, err
	}
	return f, c.Complete(r.ctx, store.CompleteParams{Fenced: f, Outcomes: stored})
}

func (r *runner[TTx]) claimAndComplete() func() error {
	return func() error {
		_, err := r.finish(r.own)
		return err
	}
}

// replay is a claim of a key that is completed: how the broker reads what a second confirm is answered.
func (r *runner[TTx]) replay() func() error {
	f, err := r.finish(r.own)
	return func() error {
		if err != nil {
			return err
		}
		s, err := r.own.Claim(r.ctx, attempt(f.ID))
		if err == nil && len(s.Claim.Outcomes) != len(stored) {
			err = fmt.Errorf("a completed key was not replayed: %s", show(s))
		}
		return err
	}
}

func (r *runner[TTx]) lookup() func() error {
	f, err := r.finish(r.own)
	return func() error {
		if err != nil {
			return err
		}
		_, err := r.own.Lookup(r.ctx, store.LookupParams{ID: f.ID, Barrier: true})
		return err
	}
}

func (r *runner[TTx]) transaction() func() error {
	return func() error {
		tx, err := r.Begin(r.ctx)
		if err != nil {
			return err
		}
		if err := r.items(tx); err != nil {
			_ = r.Rollback(r.ctx, tx)
			return err
		}
		return r.Commit(r.ctx, tx)
	}
}

// items claims a key in tx, has the effects of three items and completes it.
func (r *runner[TTx]) items(tx TTx) error {
	in := r.Store.In(tx)
	f, err := r.take(in)
	if err != nil {
		return err
	}
	if _, err := r.Store.Isolate(r.ctx, tx, 3, func(_ int, tx TTx) error { return r.Effect(r.ctx, tx, "effect") }); err != nil {
		return err
	}
	return in.Complete(r.ctx, store.CompleteParams{Fenced: f, Outcomes: stored})
}
