package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/store"
)

// isolate runs Isolate in x: item i has the effect "item i" and then the error that fail gives it.
func (x *txn[TTx]) isolate(n int, fail func(i int) error) ([]error, error) {
	return x.k.Store.Isolate(x.k.ctx, x.tx, n, func(i int, tx TTx) error {
		if err := x.k.Effect(x.k.ctx, tx, fmt.Sprint("item ", i)); err != nil {
			return fmt.Errorf("the harness's Effect: %w", err)
		}
		return fail(i)
	})
}

func isolateKeeps[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	x := k.begin()
	f := k.claim(x.in, attempt(k.id))
	var order []int
	undone, err := x.isolate(3, func(i int) error {
		order = append(order, i)
		return nil
	})
	k.ok(err, "Isolate")
	k.rule(fmt.Sprint(order) == "[0 1 2]", "Isolate calls fn once for each item, in order", order)
	k.rule(fmt.Sprint(undone) == "[<nil> <nil> <nil>]",
		"undone has one entry per item: nil when its writes are kept", undone)
	k.ok(x.in.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte("done")}), "completion after Isolate")
	x.commit()
	for i := range 3 {
		k.count(fmt.Sprint("item ", i), 1, "the writes of an item that succeeds are committed once")
	}
	k.rule(k.lookup().Claim.Completed, "the claim commits with the items", k.lookup())
}

func isolateOneFails[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	broken := errors.New("broken")
	x := k.begin()
	k.claim(x.in, attempt(k.id))
	x.effect("before")
	undone, err := x.isolate(3, func(i int) error {
		if i == 1 {
			return broken
		}
		return nil
	})
	k.ok(err, "Isolate with an item that fails")
	k.rule(len(undone) == 3 && undone[0] == nil && undone[2] == nil, "one item's failure does not sink the others", undone)
	k.rule(errors.Is(undone[1], broken), "undone tells fn's own error", undone[1])
	x.effect("after")
	x.commit()
	want := map[string]int{"before": 1, "item 0": 1, "item 1": 0, "item 2": 1, "after": 1}
	for name, n := range want {
		k.count(name, n, "of an item that fails everything is undone, and of the rest nothing")
	}
	k.rule(k.lookup().Claim != nil, "an item's failure does not undo the claim", k.lookup())
}

func isolateAllFail[TTx any](k *kit[TTx]) {
	x := k.begin()
	x.effect("before")
	fails := []error{errors.New("zero"), errors.New("one"), errors.New("two")}
	undone, err := x.isolate(3, func(i int) error { return fails[i] })
	k.ok(err, "Isolate with items that fail")
	k.rule(len(undone) == 3, "undone has one entry per item", undone)
	for i, want := range fails {
		k.rule(errors.Is(undone[i], want), "undone is in the order of the items", i, undone)
	}
	x.effect("after")
	x.commit()
	for i := range 3 {
		k.count(fmt.Sprint("item ", i), 0, "an item that fails leaves no effect")
	}
	k.count("before", 1, "items that fail undo nothing but themselves")
	k.count("after", 1, "a transaction is usable after items that fail")
}

func isolateUndoesClaims[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	x := k.begin()
	f := k.claim(x.in, attempt(k.id))
	undone, err := k.Store.Isolate(k.ctx, x.tx, 2, func(i int, tx TTx) error {
		item := fmt.Sprint("i", i)
		err := k.Store.In(tx).Progress(k.ctx, store.ProgressParams{Fenced: f, Done: item, Outcome: []byte("x"), Lease: long})
		if err == nil && i == 0 {
			err = errors.New("broken")
		}
		return err
	})
	k.ok(err, "Isolate")
	k.rule(len(undone) == 2 && undone[0] != nil && undone[1] == nil, "the lent handle works with In", undone)
	k.rule(items(k.lookupID(x.in, k.id)) == `i1="x"`,
		"what In writes with the lent handle is undone with its item", k.lookupID(x.in, k.id))
	x.commit()
	k.rule(items(k.lookup()) == `i1="x"`, "what In writes with the lent handle is kept with its item", k.lookup())
}

func isolateNone[TTx any](k *kit[TTx]) {
	x := k.begin()
	undone, err := x.isolate(0, func(int) error { return errors.New("called") })
	k.ok(err, "Isolate of no items")
	k.rule(len(undone) == 0, "undone has one entry per item, also for none", undone)
	x.effect("effect")
	x.commit()
	k.count("effect", 1, "a transaction is usable after Isolate of no items")
}

func isolateRetry[TTx any](k *kit[TTx]) {
	again := &store.Error{Op: "storetest", Kind: store.ErrRetryTx}
	for name, fail := range map[string]error{"plain": store.ErrRetryTx, "wrapped": fmt.Errorf("executor: %w", again)} {
		x := k.begin()
		calls := 0
		_, err := x.isolate(3, func(i int) error {
			calls++
			if i == 1 {
				return fail
			}
			return nil
		})
		k.refused(err, store.ErrRetryTx, "ErrRetryTx from an item is the transaction's, "+name)
		k.rule(calls == 2, "Isolate stops at ErrRetryTx", name, calls)
		x.rollback()
	}
	k.count("item 0", 0, "the owner rolls back after ErrRetryTx")
}

func isolatePanic[TTx any](k *kit[TTx]) {
	x := k.begin()
	x.effect("before")
	passed := func() (v any) {
		defer func() { v = recover() }()
		_, _ = x.isolate(2, func(int) error { panic("boom") })
		return nil
	}()
	k.rule(passed == "boom", "a panic of fn is its caller's business: it passes unchanged", passed)
	x.rollback()
	k.count("before", 0, "the owner can roll back after a panic")
	k.count("item 0", 0, "the owner can roll back after a panic")
}

// isolateEnded has an executor commit the handle that it was lent. A store refuses that, or notices it at once.
func isolateEnded[TTx any](k *kit[TTx]) {
	x := k.begin()
	x.effect("before")
	calls := 0
	var ended error
	_, err := k.Store.Isolate(k.ctx, x.tx, 2, func(_ int, tx TTx) error {
		calls++
		if err := k.Commit(k.ctx, tx); calls == 1 {
			ended = err
		}
		return nil
	})
	if ended == nil {
		k.refused(err, store.ErrTxEnded, "Isolate notices that an executor ended the transaction")
		k.rule(calls == 1, "Isolate calls no further item once the transaction was ended", calls)
		p := attempt(k.id)
		p.AcceptUnminted = true
		_, err = k.Store.In(x.tx).Claim(k.ctx, p)
		k.rule(err != nil, "In refuses a transaction that was ended", err)
	}
	x.ended = true
	_ = k.Rollback(context.WithoutCancel(k.ctx), x.tx)
	k.rule(k.lookup().Claim == nil, "nothing is written by itself once the transaction was ended", k.lookup())
	if ended != nil {
		k.count("before", 0, "a commit that was refused committed nothing")
	}
}
