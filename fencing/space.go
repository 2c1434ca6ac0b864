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

// Check is something that must be true until the transaction ends: see [EpochIs], [SessionIs], [AdmissionOpen] and
// [AdmissionDrained]. The zero Check is none.
type Check struct {
	name string // of the value that is held
	kind kinds  // what a Fence may write because of it
	hold func(ctx context.Context, values store.Values, id store.ValueID) error
}

// Fence is what [Space.Hold] returns: the proof that its checks hold until the end of the transaction, and the only way to write
// under them. The zero Fence holds nothing, and its methods return ErrUnfenced. So does a method whose kinds of checks the Fence
// does not hold; the message says which are missing:
//
//   - [EpochIs] for what is the office's: ApproveAgent, ActivateAgent, Reserve, FenceReservation and ReleaseReservation;
//   - [SessionIs] and EpochIs for IssuePermit, which an agent asks the dispatcher for;
//   - SessionIs for what a dispatcher asks an agent for: StartAdmission, SetAdmission, DrainAdmission, StopAdmission, EndPermits and
//     ConsumePermit, which also needs [AdmissionOpen];
//   - either of the two for StartTask, ControlTask and ShowToken, which both sides have. A session is held with its epoch.
//
// It is the kinds that are asked for: hold the checks of the very peer and agent that the method is called for, as it cannot know
// what its caller meant.
//
// Like its transaction a Fence is not safe for concurrent use, and of no use after it.
//
// Let the functions that write a service's own rows take a Fence too: then a write without one does not compile.
type Fence struct {
	space  Space
	values store.Values
	held   kinds
}

// Hold makes the checks under locks that last until the transaction ends, whose values these are. At least one check is needed. The
// locks are taken in one order, whatever the order of the checks, so that two calls never wait for each other.
//
// The error is the refusal of the first check, in the order given, that does not hold; ErrUnfenced without a check, or with one that
// is none; or the store's, after which nothing more is looked at.
func (s Space) Hold(ctx context.Context, values store.Values, checks ...Check) (Fence, error) {
	if len(checks) == 0 || slices.ContainsFunc(checks, func(c Check) bool { return c.hold == nil }) {
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
	f := Fence{space: s, values: values}
	for i, err := range refusals {
		if err != nil {
			return Fence{}, err
		}
		f.held |= checks[i].kind
	}
	return f, nil
}

// And is a Fence that holds more checks beside f's: such as [AdmissionOpen] in the Apply of a mutation, whose Guard holds only what
// may refuse also a repeated request. For the errors see [Space.Hold].
func (f Fence) And(ctx context.Context, checks ...Check) (Fence, error) {
	if !f.Held() {
		return Fence{}, ErrUnfenced
	}
	more, err := f.space.Hold(ctx, f.values, checks...)
	if err != nil {
		return Fence{}, err
	}
	more.held |= f.held
	return more, nil
}

// Held says whether f holds anything.
func (f Fence) Held() bool { return f.values != nil }

// mayWrite refuses the zero Fence, one that holds none of a set that is needed, and a name that cannot be part of a value's.
func (f Fence) mayWrite(path, name string, limit int, needs ...kinds) error {
	if !f.Held() {
		return ErrUnfenced
	}
	for _, need := range needs {
		if f.held&need == 0 {
			return need.missing()
		}
	}
	return contract.ValidateText(path, name, limit)
}

// change updates a state of f's space, which mayWrite has allowed.
func change[S state](ctx context.Context, f Fence, name string, decide func(S) (S, error)) (before, after S, err error) {
	return update(ctx, f.values, f.space.id(name), decide)
}
