package memstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/store/memstore"
)

// An executor's effect in memory is undone with its item when it says how.
func ExampleTx_OnRollback() {
	ctx := context.Background()
	s := memstore.New(nil)
	forums := map[string]bool{}
	add := func(tx *memstore.Tx, name string) {
		forums[name] = true
		tx.OnRollback(func() { delete(forums, name) })
	}

	tx, err := s.BeginTx(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	undone, err := s.Isolate(ctx, tx, 2, func(i int, tx *memstore.Tx) error {
		add(tx, fmt.Sprint("forum ", i))
		if i == 1 {
			return errors.New("the name is taken")
		}
		return nil
	})
	fmt.Println(undone, err)
	fmt.Println(tx.Commit(), forums)
	// Output:
	// [<nil> the name is taken] <nil>
	// <nil> map[forum 0:true]
}
