package fencetest

import (
	"context"
	"errors"

	"github.com/confirmexec/confirmexec/store"
)

// tries is how often a transaction is run again while the database asks for that.
const tries = 20

// once runs act in a transaction of its own, and commits it unless act fails.
func (k *kit[TTx]) once(act func(tx TTx) error) error {
	tx, err := k.Begin(k.ctx)
	if err != nil {
		return err
	}
	if err := act(tx); err != nil {
		_ = k.Rollback(context.WithoutCancel(k.ctx), tx)
		return err
	}
	return k.Commit(k.ctx, tx)
}

// do is once, again while the database asks for that.
func (k *kit[TTx]) do(act func(tx TTx) error) error {
	err := k.once(act)
	for range tries {
		if !passing(err) {
			break
		}
		err = k.once(act)
	}
	return err
}

// passing says whether err is of the moment: the transaction may be run again.
func passing(err error) bool {
	return errors.Is(err, store.ErrRetryTx) || errors.Is(err, store.ErrLockTimeout) || errors.Is(err, store.ErrBusy)
}

// committed runs act in a transaction that is committed also after a refusal, as a careless service does.
func (k *kit[TTx]) committed(act func(tx TTx) error) error {
	var refusal error
	err := k.do(func(tx TTx) error {
		refusal = act(tx)
		if passing(refusal) {
			return refusal
		}
		return nil
	})
	if refusal != nil {
		return refusal
	}
	return err
}

// txn is a transaction that stays open. It is rolled back at the end of the test if the test did not end it.
type txn[TTx any] struct {
	k     *kit[TTx]
	tx    TTx
	ended bool
}

func (k *kit[TTx]) begin() *txn[TTx] {
	k.Helper()
	tx, err := k.Begin(k.ctx)
	k.ok(err, "the harness's Begin")
	x := &txn[TTx]{k: k, tx: tx}
	k.Cleanup(func() {
		if !x.ended {
			_ = k.Rollback(context.WithoutCancel(k.ctx), tx)
		}
	})
	return x
}

func (x *txn[TTx]) commit() error {
	x.ended = true
	return x.k.Commit(x.k.ctx, x.tx)
}

func (x *txn[TTx]) rollback() {
	x.ended = true
	_ = x.k.Rollback(x.k.ctx, x.tx)
}

// together runs acts at once and returns their errors.
func together(acts ...func() error) []error {
	start, results := make(chan struct{}), make([]chan error, len(acts))
	for i, act := range acts {
		results[i] = make(chan error, 1)
		go func() {
			<-start
			results[i] <- act()
		}()
	}
	close(start)
	errs := make([]error, len(acts))
	for i, r := range results {
		errs[i] = <-r
	}
	return errs
}

// times is n times the same act, each with its number.
func times(n int, act func(i int) error) []func() error {
	acts := make([]func() error, n)
	for i := range acts {
		acts[i] = func() error { return act(i) }
	}
	return acts
}
