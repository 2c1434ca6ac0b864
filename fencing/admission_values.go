package fencing

import (
	"context"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// StartAdmission begins an agent's admission, closed and in generation 1; one that was started stays as it is. Nothing else begins
// one but a stop, and nothing lowers its generation (R49).
func (f Fence) StartAdmission(ctx context.Context, agentID string) (Admission, error) {
	if err := f.mayWrite("/agent_id", agentID, contract.MaxMetaText, sessionIs); err != nil {
		return Admission{}, err
	}
	_, a, err := change(ctx, f, admissionName(agentID), Admission.Start)
	return a, err
}

// SetAdmission opens or closes an agent's admission: see [Admission.Set], also for the errors. It is the Apply of the broker's
// mutation, which answers a repeated request before it gets here (R42, R44).
func (f Fence) SetAdmission(ctx context.Context, agentID string, r AdmissionRequest, active int64) (contract.Receipt, error) {
	return f.admission(ctx, agentID, func(a Admission) (Admission, contract.Receipt, error) { return a.Set(r, active) })
}

// DrainAdmission records that the last barrier is reached: see [Admission.Drain]. The close's receipt advances to what it returns,
// with broker.ResolveMutation (R48).
func (f Fence) DrainAdmission(ctx context.Context, agentID, barrierID string, active int64) (contract.Receipt, error) {
	return f.admission(ctx, agentID, func(a Admission) (Admission, contract.Receipt, error) { return a.Drain(barrierID, active) })
}

// StopAdmission closes an agent's admission for ever: see [Admission.Stop]. It has no claim of the broker's, and may be repeated
// (R85, R91, R92).
func (f Fence) StopAdmission(ctx context.Context, agentID, barrierID string, epoch Epoch, active int64) (contract.Receipt, error) {
	return f.admission(ctx, agentID, func(a Admission) (Admission, contract.Receipt, error) { return a.Stop(barrierID, epoch, active) })
}

func (f Fence) admission(ctx context.Context, agentID string, decide func(Admission) (Admission, contract.Receipt, error)) (
	contract.Receipt, error,
) {
	if err := f.mayWrite("/agent_id", agentID, contract.MaxMetaText, sessionIs); err != nil {
		return contract.Receipt{}, err
	}
	return receipted(ctx, f, admissionName(agentID), decide)
}

// receipted changes a state, and returns the receipt of the decision that was swapped in.
func receipted[S state](ctx context.Context, f Fence, name string, decide func(S) (S, contract.Receipt, error)) (contract.Receipt, error) {
	var r contract.Receipt
	_, _, err := change(ctx, f, name, func(s S) (next S, err error) {
		next, r, err = decide(s)
		return next, err
	})
	if err != nil {
		return contract.Receipt{}, err
	}
	return r, nil
}

// Admission tells how an agent's admission stands, without a lock: nothing may be written because of it. What was never started is
// the zero Admission, which takes no work.
func (s Space) Admission(ctx context.Context, values store.Values, agentID string) (Admission, error) {
	v, err := values.Load(ctx, s.id(admissionName(agentID)))
	if err != nil {
		return Admission{}, err
	}
	return decode[Admission](v)
}

// AdmissionOpen holds while an agent takes new work: see [Admission.Admit]. It keeps admission from being closed until the
// transaction ends.
//
// Do not change the same admission in a transaction that holds it, with this or with AdmissionDrained: two that did would wait for
// each other, and the store would end one of them with store.ErrRetryTx. SetAdmission needs no such hold, since it swaps what it
// decided on.
func AdmissionOpen(agentID string) Check {
	return admissionCheck(agentID, admissionOpen, Admission.Admit)
}

// AdmissionDrained holds while a barrier is the last one of an agent, and is reached: what depends on it comes after it, and before
// whatever takes its place. The error is ErrNotDrained (R119). See AdmissionOpen for what not to do with it.
func AdmissionDrained(agentID, barrierID string) Check {
	return admissionCheck(agentID, 0, func(a Admission) error {
		_, err := a.Reached(barrierID)
		return err
	})
}

// admissionCheck decides on an admission under its lock. One that does not exist cannot be locked, and is refused by every check.
func admissionCheck(agentID string, kind kinds, decide func(Admission) error) Check {
	return Check{admissionName(agentID), kind, func(ctx context.Context, values store.Values, id store.ValueID) error {
		a, _, err := hold[Admission](ctx, values, id)
		if err != nil {
			return err
		}
		return decide(a)
	}}
}

func admissionName(agentID string) string { return "admission/" + agentID }
