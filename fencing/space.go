package fencing

import (
	"cmp"
	"context"
	"slices"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Space is the fencing state of one tenant. The zero Tenant is refused by every store.
type Space struct{ Tenant string }

func (s Space) id(name string) store.ValueID { return store.ValueID{Tenant: s.Tenant, Name: name} }

// Check is something that must be true until the transaction ends: see [EpochIs] and [SessionIs].
type Check struct {
	name string // of the value that is held
	hold func(ctx context.Context, values store.Values, id store.ValueID) error
}

// Fence is what [Space.Hold] returns: the proof that its checks hold until the end of the transaction, and the only way to write
// under them. The zero Fence holds nothing, and its methods return ErrUnfenced. Like its transaction it is not safe for
// concurrent use, and of no use after it.
//
// Let the functions that write a service's own rows take a Fence too: then a write without one does not compile.
type Fence struct {
	space  Space
	values store.Values
}

// Hold makes the checks under locks that last until the transaction ends, whose values these are. At least one check is needed. The
// locks are taken in one order, whatever the order of the checks, so that two calls never wait for each other.
//
// The error is the refusal of the first check, in the order given, that does not hold; ErrUnfenced without a check; or the
// store's, after which nothing more is looked at.
func (s Space) Hold(ctx context.Context, values store.Values, checks ...Check) (Fence, error) {
	if len(checks) == 0 {
		return Fence{}, ErrUnfenced
	}
	order := make([]int, len(checks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(checks[a].name, checks[b].name) })
	refusals := make([]error, len(checks))
	for _, i := range order {
		refusals[i] = checks[i].hold(ctx, values, s.id(checks[i].name))
		if _, refused := contract.FailureOf(refusals[i]); refusals[i] != nil && !refused {
			return Fence{}, refusals[i]
		}
	}
	for _, err := range refusals {
		if err != nil {
			return Fence{}, err
		}
	}
	return Fence{s, values}, nil
}

// Held says whether f holds anything.
func (f Fence) Held() bool { return f.values != nil }

// mayWrite refuses the zero Fence, and a name that cannot be part of a value's.
func (f Fence) mayWrite(path, name string, limit int) error {
	if !f.Held() {
		return ErrUnfenced
	}
	return contract.ValidateText(path, name, limit)
}

// change updates a state of f's space.
func change[S state](ctx context.Context, f Fence, name string, decide func(S) (S, error)) (before, after S, err error) {
	if !f.Held() {
		return before, after, ErrUnfenced
	}
	return update(ctx, f.values, f.space.id(name), decide)
}
