package broker

import (
	"slices"

	"github.com/confirmexec/confirmexec/contract"
)

// Outcome is what an executor says that it did. Its zero value says nothing and is never taken for success: it is failed and
// undone in a transaction, and ambiguous in Execute. It is opaque, so that a state can only be made by saying it.
type Outcome struct {
	state       contract.OutcomeState
	ref, detail string
}

// Applied says that the effect happened; ref names what it made in the target's terms, or is empty.
func Applied(ref string) Outcome { return Outcome{state: contract.Applied, ref: ref} }

// Skipped says that the executor decided to do nothing, and why. In a transaction the item's writes are undone.
func Skipped(why string) Outcome { return Outcome{state: contract.Skipped, detail: why} }

// WithDetail returns o with a text for the person who reads the result.
func (o Outcome) WithDetail(detail string) Outcome {
	o.detail = detail
	return o
}

// NotApplied marks err as definite: the executor knows that the effect did not happen, so that the item is failed and not
// ambiguous. Nil stays nil.
func NotApplied(err error) error {
	if err == nil {
		return nil
	}
	return notApplied{err}
}

type notApplied struct{ error }

func (n notApplied) Unwrap() error { return n.error }

// KnownNoEffect is what [contract.KnownNoEffect] asks.
func (notApplied) KnownNoEffect() bool { return true }

// knownNoEffect says whether an executor's error is proof that nothing happened: it is marked by NotApplied, or it is a failure
// whose code or evidence says so.
func knownNoEffect(err error) bool { return contract.KnownNoEffect(err) && !unread(err) }

// unread says whether an InvalidError is among what speaks for err: it may be the target's answer, which could not be read.
func unread(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ KnownNoEffect() bool }:
		return false
	case *contract.InvalidError:
		return true
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), unread)
	case interface{ Unwrap() error }:
		return unread(e.Unwrap())
	}
	return false
}

// external is what is known of an item whose effect is outside the database: only what the executor said, and nothing at
// all after an error that does not say otherwise.
func external(itemID string, r returned[Outcome]) contract.OperationItemOutcome {
	return known(itemID, r, contract.Ambiguous)
}

// transactional is what is known of an item whose effects are in the transaction: whatever went wrong, they are undone.
func transactional(itemID string, r returned[Outcome]) contract.OperationItemOutcome {
	return known(itemID, r, contract.Failed)
}

// known turns what an executor returned into a storable outcome. An error beats an outcome, so that
// `return Applied(id), err` is safe.
func known(itemID string, r returned[Outcome], unsure contract.OutcomeState) contract.OperationItemOutcome {
	out := contract.OperationItemOutcome{ItemID: itemID, State: r.value.state, Ref: r.value.ref, Detail: r.value.detail}
	switch {
	case r.err != nil:
		out = contract.OperationItemOutcome{ItemID: itemID, State: unsure, Reason: r.reason, Detail: r.text}
		if r.none {
			out.State = contract.Failed
		}
	case r.value.state == "":
		out.State, out.Reason = unsure, contract.ReasonNoOutcome
	}
	return out.Clean()
}

func reasonOf(err error) contract.Reason {
	f, ok := contract.FailureOf(err)
	switch {
	case !ok:
		return ""
	case f.Reason != "":
		return f.Reason
	}
	return contract.Reason(f.Code)
}
