package fencing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// A deposed instance that does not know it yet: what it writes after the new one took over is refused, by the database and not by
// its own good will.
func Example() {
	ctx, st := context.Background(), memstore.New(nil) // a service has pgstore or sqlitestore
	space := fencing.Space{Tenant: "cell-3"}
	inTx := func(do func(values store.Values) error) error {
		tx, err := st.BeginTx(ctx)
		if err != nil {
			return err
		}
		if err := do(st.Values(tx)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	takeOffice := func() (o fencing.Office) {
		_ = inTx(func(values store.Values) (err error) {
			o, err = space.TakeOffice(ctx, values, "dispatcher")
			return err
		})
		return o
	}
	// reserve is a write of an instance that thinks that it is in office. Without the fence there is no method to call.
	reserve := func(mine fencing.Epoch, line string) error {
		return inTx(func(values store.Values) error {
			fence, err := space.Hold(ctx, values, fencing.EpochIs("dispatcher", mine))
			if err != nil {
				return err
			}
			_, err = fence.Reserve(ctx, line, "reservation-of-"+line, "agent-7")
			return err
		})
	}

	first := takeOffice()
	fmt.Println("first:", reserve(first.Epoch, "line-1"))
	second := takeOffice() // the first one is paused, or cut off, and was not asked
	fmt.Println("second:", reserve(second.Epoch, "line-2"))
	fmt.Println("first again:", errors.Is(reserve(first.Epoch, "line-3"), fencing.ErrEpochFenced))
	// Output:
	// first: <nil>
	// second: <nil>
	// first again: true
}
