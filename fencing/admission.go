package fencing

import (
	"errors"

	"github.com/confirmexec/confirmexec/contract"
)

// Admission is whether an agent takes new work. It takes some only while it is open, and never again once it was stopped. Its zero
// value is one that nobody started, which takes no work and can be neither opened nor closed.
//
// Whatever changes it is a barrier with an id of its own, and moves the generation by one. A close is applied when it is drained:
// when no call is active that was registered before (see [Gate]). Until then it is accepted, and takes no new work either.
//
// Its methods are pure decisions: what it becomes, and the receipt. With an error nothing changes.
type Admission struct {
	Generation int64  `json:"generation"` // it only rises, by one with each change; 0: not started
	Open       bool   `json:"open"`       // never while Stopped
	Stopped    bool   `json:"stopped"`    // for ever (R92, A20)
	Barrier    string `json:"barrier"`    // the id of the last change; empty before the first
	Drained    bool   `json:"drained"`    // closed, and the last count found no active call
	Epoch      Epoch  `json:"epoch"`      // of the dispatcher that asked for the last change
}

// AdmissionRequest asks to open or to close admission (SetAdmissionState). Give its operation the broker's identity {"barrier", id}
// as well, so that no two operations have one barrier (R46).
type AdmissionRequest struct {
	BarrierID          string
	ExpectedGeneration int64 // the one that stands; one that is missing is an error, never "any" (R47)
	Open               bool  // the target: open or closed
	Epoch              Epoch // of the dispatcher that asks: part of the evidence, and not checked here; see EpochIs
}

// Start begins a life of admission, closed and in generation 1. One that was started stays as it is, whatever it has become (R49).
func (a Admission) Start() (Admission, error) {
	if a.Generation == 0 {
		return Admission{Generation: 1}, nil
	}
	return a, nil
}

// Set decides about a request to open or close. Active is how many registered calls are active, counted after the last one could
// be registered (see [Gate.Close]); it matters for a close alone: that is APPLIED when there are none, and ACCEPTED when there are
// some, until [Admission.Drain] (R43, R48).
//
// An opening does not wait for a barrier that is not reached: it takes the barrier's place, which then is never reached.
//
// Errors: *[contract.InvalidError]; ErrNotStarted; ErrTerminal for an opening after a stop, whatever it expects (R92);
// [contract.ErrSecondOperation] for the barrier id of the last change (R46); ErrMoved (R45). The last three tell the current
// generation.
func (a Admission) Set(r AdmissionRequest, active int64) (Admission, contract.Receipt, error) {
	if err := a.permits(r, active); err != nil {
		return a, contract.Receipt{}, err
	}
	return a.move(r, active, a.Stopped)
}

func (a Admission) permits(r AdmissionRequest, active int64) error {
	if err := validBarrier(r.BarrierID, active); err != nil {
		return err
	}
	if err := validEpoch(r.Epoch); err != nil {
		return err
	}
	moved := expect("/expected_generation", r.ExpectedGeneration, a.Generation)
	switch {
	case errors.Is(moved, contract.ErrInvalid):
		return moved
	case a.Generation == 0:
		return ErrNotStarted
	case a.Stopped && r.Open:
		return standing(ErrTerminal, a.Generation)
	case r.BarrierID == a.Barrier:
		return standing(contract.ErrSecondOperation, a.Generation)
	}
	return moved
}

// move makes a change, which counts the generation on by one.
func (a Admission) move(r AdmissionRequest, active int64, stopped bool) (Admission, contract.Receipt, error) {
	generation, err := next(a.Generation)
	if err != nil {
		return a, contract.Receipt{}, standing(ErrExhausted, a.Generation)
	}
	moved := Admission{Generation: generation, Open: r.Open, Stopped: stopped, Barrier: r.BarrierID, Epoch: r.Epoch}
	if r.Open {
		return moved, contract.Receipt{Result: contract.ResultApplied, Before: a.Generation, After: generation, Ref: r.BarrierID}, nil
	}
	moved.Drained = active == 0
	return moved, closed(a.Generation, generation, r.BarrierID, r.Epoch, active), nil
}

// Drain decides about the evidence that the last barrier is reached: that of the calls that were registered active ones are left, and
// that no more can be. The receipt is the one that the close advances to, and the same whenever it is asked for again (R20, R48).
//
// Errors: *[contract.InvalidError]; ErrNotStarted; ErrMoved when the barrier is not the last one, or is an opening: it can be
// reached no more, and its operation was stopped before it was applied; ErrNotDrained while calls are active.
func (a Admission) Drain(barrierID string, active int64) (Admission, contract.Receipt, error) {
	if err := validBarrier(barrierID, active); err != nil {
		return a, contract.Receipt{}, err
	}
	switch {
	case a.Generation == 0:
		return a, contract.Receipt{}, ErrNotStarted
	case a.Open || barrierID != a.Barrier:
		return a, contract.Receipt{}, standing(ErrMoved, a.Generation)
	case active != 0:
		return a, contract.Receipt{}, standing(ErrNotDrained, a.Generation)
	}
	drained := a
	drained.Drained = true
	r, err := drained.Reached(barrierID)
	return drained, r, err
}

// Reached is the receipt of the last barrier if that is a close, and reached. It is what a broker.EvidenceReader returns to advance
// the receipt of the close. The error is ErrNotDrained for every other barrier (R119).
func (a Admission) Reached(barrierID string) (contract.Receipt, error) {
	if a.Open || !a.Drained || barrierID == "" || barrierID != a.Barrier {
		return contract.Receipt{}, standing(ErrNotDrained, a.Generation)
	}
	return closed(a.Generation-1, a.Generation, barrierID, a.Epoch, 0), nil
}

// Stop decides about a stop, which nothing takes back: admission is closed for ever, by a close with a generation of its own, so that
// an opening that is still on its way is stale as well (A20). It expects no generation, and also stops what nobody started.
//
// One that is stopped already is not moved again: every delivery of a stop tells, by its receipt, whether anything is active (R91).
func (a Admission) Stop(barrierID string, epoch Epoch, active int64) (Admission, contract.Receipt, error) {
	if err := validBarrier(barrierID, active); err != nil {
		return a, contract.Receipt{}, err
	}
	if err := validEpoch(epoch); err != nil {
		return a, contract.Receipt{}, err
	}
	if !a.Stopped {
		return a.move(AdmissionRequest{BarrierID: barrierID, Epoch: epoch}, active, true)
	}
	stopped := a
	stopped.Drained = active == 0
	return stopped, closed(a.Generation, a.Generation, barrierID, epoch, active), nil
}

// Admit is the pure decision about new work: ErrClosed while admission is not open; after a stop that is the cause of ErrTerminal
// (R57, R92).
func (a Admission) Admit() error {
	switch {
	case a.Stopped:
		return standing(ErrTerminal.With(ErrClosed), a.Generation)
	case !a.Open:
		return standing(ErrClosed, a.Generation)
	}
	return nil
}

// sound says whether a can be an admission that was started.
func (a Admission) sound() bool { return a.Generation > 0 && (!a.Open || !a.Stopped && !a.Drained) }

// closed is the receipt of a close: applied when nothing is active behind its barrier, and accepted until then.
func closed(before, after int64, barrierID string, epoch Epoch, active int64) contract.Receipt {
	r := contract.Receipt{
		Result: contract.ResultApplied, Before: before, After: after, Ref: barrierID,
		Barrier: &contract.Barrier{ID: barrierID, ActiveCalls: active, Epoch: string(epoch)},
	}
	if active != 0 {
		r.Result = contract.ResultAccepted
	}
	return r
}

func validBarrier(id string, active int64) error {
	if active < 0 {
		return &contract.InvalidError{Path: "/active_calls", Problem: "must not be negative"}
	}
	return contract.ValidateText("/barrier_id", id, contract.MaxMetaText)
}

func validEpoch(e Epoch) error {
	return contract.ValidateText("/dispatcher_epoch", string(e), contract.MaxMetaText)
}
