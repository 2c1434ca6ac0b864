package dispatch

import (
	"context"
	"errors"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store"
)

// SetAdmissionState opens or closes, behind a barrier that one operation has (R42-R47). What closes closes the gate first, and what
// opens opens it last, after the commit. A close with active calls is ACCEPTED until they have ended (R48).
func (a *agent[TTx]) SetAdmissionState(ctx context.Context, q *agentv1.SetAdmissionStateRequest) (
	*agentv1.SetAdmissionStateResponse, error,
) {
	request := fencing.AdmissionRequest{
		BarrierID: q.GetBarrierId(), ExpectedGeneration: q.GetExpectedGeneration(), Open: q.GetOpen(),
		Epoch: fencing.Epoch(q.GetMeta().GetDispatcherEpoch()),
	}
	m, fence := a.mutation(ctx, "SetAdmissionState", metaOf(q), contract.NewContent("SetAdmissionState").
		Text("barrier_id", request.BarrierID).Int("expected_generation", request.ExpectedGeneration).Bool("open", request.Open).Digest())
	m.Identities = []broker.Identity{barrierRef(a.cfg.Tenant, request.BarrierID).Identity}
	m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
		active, err := a.closing(ctx, a.store.Values(tx), request)
		if err != nil {
			return contract.Receipt{}, err
		}
		return fence.SetAdmission(ctx, agentID, request, active)
	}
	r, err := a.broker.Mutate(ctx, *m)
	if err == nil && request.Open && r.Applied() {
		_ = a.gate.Open(r.After) // too late if a newer change has closed it: that one is right
	}
	if err == nil && r.Result == contract.ResultAccepted && !r.Replayed {
		go a.drainLater(context.WithoutCancel(ctx), request.BarrierID)
	}
	receipt, err := answered(r, err)
	return &agentv1.SetAdmissionStateResponse{Receipt: receipt}, err
}

// barrierRef names the mutation that has a barrier.
func barrierRef(tenant, barrier string) broker.MutationRef {
	return broker.MutationRef{Tenant: tenant, Identity: broker.Identity{Kind: "barrier", Value: barrier}}
}

// closing closes the gate for a close that stands a chance, and counts the calls behind it.
func (a *agent[TTx]) closing(ctx context.Context, values store.Values, r fencing.AdmissionRequest) (int64, error) {
	if r.Open {
		return 0, nil
	}
	now, err := a.space.Admission(ctx, values, agentID)
	if err != nil || now.Generation != r.ExpectedGeneration {
		return 0, err
	}
	return a.gate.Close(r.ExpectedGeneration), nil
}

// drainLater waits for the calls behind a barrier, and advances the receipt of the close then.
func (a *agent[TTx]) drainLater(ctx context.Context, barrier string) {
	ctx, cancel := context.WithTimeout(ctx, 10*a.cfg.Drain)
	defer cancel()
	if a.gate.Drain(ctx) == nil {
		_ = a.drained(ctx, barrier)
	}
}

// drained makes the evidence durable, and lets the receipt of the close advance on it.
func (a *agent[TTx]) drained(ctx context.Context, barrier string) error {
	var reached fencing.Admission
	err := a.tx(ctx, func(ctx context.Context, tx TTx) error {
		values := a.store.Values(tx)
		fence, err := a.space.Hold(ctx, values, fencing.SessionIs(a.dispatcher()))
		if err != nil {
			return err
		}
		if _, err := fence.DrainAdmission(ctx, agentID, barrier, int64(len(a.gate.Calls()))); err != nil {
			return err
		}
		reached, err = a.space.Admission(ctx, values, agentID)
		return err
	})
	if err != nil {
		return err
	}
	evidence := func(context.Context, broker.Call) (contract.Receipt, error) { return reached.Reached(barrier) }
	_, err = a.broker.ResolveMutation(ctx, barrierRef(a.cfg.Tenant, barrier), "agent-gate", evidence)
	return err
}

// dispatcher is the other end of the session that this process has.
func (a *agent[TTx]) dispatcher() fencing.Caller {
	a.sessionMu.Lock()
	defer a.sessionMu.Unlock()
	return fencing.Caller{Peer: dispatcherURI, Says: a.session.Binding, Epoch: a.session.Epoch}
}

// join takes the session that the dispatcher gave, begins the life of admission in it, and finishes a close that a process before
// this one left behind its barrier: its calls have ended with it.
func (a *agent[TTx]) join(ctx context.Context, given fencing.Session) error {
	var standing fencing.Admission
	err := a.tx(ctx, func(ctx context.Context, tx TTx) error {
		values := a.store.Values(tx)
		if _, err := a.space.JoinSession(ctx, values, dispatcherURI, given); err != nil {
			return err
		}
		fence, err := a.space.Hold(ctx, values, fencing.SessionIs(fencing.Caller{Peer: dispatcherURI, Says: given.Binding, Epoch: given.Epoch}))
		if err != nil {
			return err
		}
		standing, err = fence.StartAdmission(ctx, agentID)
		return err
	})
	if err != nil {
		return err
	}
	a.sessionMu.Lock()
	a.session = given
	a.sessionMu.Unlock()
	if standing.Barrier == "" || standing.Open || standing.Stopped || len(a.gate.Calls()) > 0 {
		return nil
	}
	if err := a.drained(ctx, standing.Barrier); err != nil && !errors.Is(err, fencing.ErrMoved) {
		return err
	}
	return nil
}
