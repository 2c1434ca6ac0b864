package fencing

import (
	"context"
	"crypto/rand"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Epoch names one time of office of an active instance. It is opaque: two are equal or they are not, and nothing follows from
// their order (R113). The empty Epoch is none.
type Epoch string

// Office is who is active in a scope: the state behind an epoch.
type Office struct {
	Epoch  Epoch `json:"epoch"`
	Number int64 `json:"number"` // of the office: it only rises, for people and for tests
}

// Take is the pure decision of a new instance that takes over with an epoch of its own: the one before is fenced from then on. An
// epoch is never taken twice in a row; that it was never taken before is for its randomness.
func (o Office) Take(e Epoch) (Office, error) {
	if e == "" || e == o.Epoch {
		return o, &contract.InvalidError{Path: "/epoch", Problem: "must be a new one"}
	}
	number, err := next(o.Number)
	if err != nil {
		return o, err
	}
	return Office{e, number}, nil
}

func (o Office) sound() bool { return o.Epoch != "" && o.Number > 0 }

// TakeOffice makes the calling instance the active one of a scope: it returns a new epoch, which fences every other instance as
// soon as the transaction has committed, and must not be used before. It waits for writers that hold the epoch before (R111).
func (s Space) TakeOffice(ctx context.Context, values store.Values, scope string) (Office, error) {
	epoch := Epoch(rand.Text()) // 128 bits
	_, o, err := update(ctx, values, s.id(officeName(scope)), func(o Office) (Office, error) { return o.Take(epoch) })
	return o, err
}

// Office tells who is active in a scope, without a lock: nothing may be written because of it.
func (s Space) Office(ctx context.Context, values store.Values, scope string) (Office, error) {
	return load[Office](ctx, values, s.id(officeName(scope)))
}

// EpochIs holds when e is the active epoch of a scope. A scope without an office has none, and refuses every epoch: an empty store
// never means "the first". The refusal is ErrEpochFenced, with the number of the office that stands.
func EpochIs(scope string, e Epoch) Check {
	return Check{officeName(scope), epochIs, func(ctx context.Context, values store.Values, id store.ValueID) error {
		o, _, err := hold[Office](ctx, values, id)
		if err == nil && (e == "" || o.Epoch != e) {
			err = standing(ErrEpochFenced, o.Number)
		}
		return err
	}}
}

func officeName(scope string) string { return "office/" + scope }
