package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// The harness of a store in memory, and what the suite does with one: an effect stays if its transaction commits, and else it never was.
func ExampleHarness() {
	st := memstore.New(&memstore.Config{LockTimeout: time.Second})
	rows := map[string]int{} // the suite calls a harness from many goroutines, so that a real one has a lock here
	h := storetest.Harness[*memstore.Tx]{
		Store:    st,
		Begin:    st.BeginTx,
		Commit:   func(_ context.Context, tx *memstore.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *memstore.Tx) error { return tx.Rollback() },
		Effect: func(_ context.Context, tx *memstore.Tx, name string) error {
			rows[name]++
			tx.OnRollback(func() { rows[name]-- })
			return nil
		},
		Count:   func(_ context.Context, name string) (int, error) { return rows[name], nil },
		Advance: time.Sleep,
	}

	ctx := context.Background()
	for _, end := range []func(context.Context, *memstore.Tx) error{h.Rollback, h.Commit} {
		tx, err := h.Begin(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		err = errors.Join(h.Effect(ctx, tx, "row"), end(ctx, tx))
		n, _ := h.Count(ctx, "row")
		fmt.Println(n, err)
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
}

// myHarness is a harness as ExampleHarness makes one; TestTheSuitePassesWithoutAFault runs the suite on it.
func myHarness() storetest.Harness[*memstore.Tx] { return newHarness(fault{}) }

// The test that a store has. The harness is new, and its store empty, for each subtest.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		storetest.Run(t, func(*testing.T) storetest.Harness[*memstore.Tx] { return myHarness() })
	}
}

// The benchmark that a store has.
func ExampleRunBenchmarks() {
	_ = func(b *testing.B) { // func BenchmarkStore(b *testing.B)
		storetest.RunBenchmarks(b, func(*testing.B) storetest.Harness[*memstore.Tx] { return myHarness() })
	}
}
