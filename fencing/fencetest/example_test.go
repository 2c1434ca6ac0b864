package fencetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/fencing/fencetest"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// The test that a store, or an implementation of one's own, has.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestFencing(t *testing.T)
		fencetest.Run(t, func(*testing.T) fencetest.Harness[*memstore.Tx] {
			return fencetest.Of(memstore.New(nil), "firm-1") // an empty store for each subtest
		})
	}
}

// A harness is the implementation, one function for each rule: here it is package fencing on a store in memory.
func ExampleOf() {
	ctx, h := context.Background(), fencetest.Of(memstore.New(nil), "firm-1")
	inTx := func(do func(tx *memstore.Tx) error) error {
		tx, err := h.Begin(ctx)
		if err != nil {
			return err
		}
		if err := do(tx); err != nil {
			return errors.Join(err, h.Rollback(ctx, tx))
		}
		return h.Commit(ctx, tx)
	}
	takeOffice := func() (o fencing.Office) {
		_ = inTx(func(tx *memstore.Tx) (err error) {
			o, err = h.TakeOffice(ctx, tx)
			return err
		})
		return o
	}
	write := func(e fencing.Epoch) error {
		return inTx(func(tx *memstore.Tx) error { return h.HoldOffice(ctx, tx, e) })
	}

	first := takeOffice()
	second := takeOffice()
	fmt.Println("first is fenced off:", errors.Is(write(first.Epoch), fencing.ErrEpochFenced))
	fmt.Println("second:", write(second.Epoch))
	// Output:
	// first is fenced off: true
	// second: <nil>
}
