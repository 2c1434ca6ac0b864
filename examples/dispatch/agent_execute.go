package dispatch

import (
	"context"
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
)

// ErrNotMock is the refusal of every adapter but the mock (R68).
var ErrNotMock = &contract.Failure{
	Code: contract.PermissionDenied, Reason: "example.dispatch.not_mock", Effect: contract.EffectNone,
	Message: "only the mock adapter is served; nothing was done",
}

// Execute executes under a permit. The permit is consumed in the transaction that claims the operation: its epoch, its session, its
// token and its deadline are checked there, and admission has to be open (R50-R57); one that is void, by what the message says of its
// resource or by what was said before, is refused (R73). UNKNOWN is committed before the adapter is
// invoked, at most once for the execution and for the permit.
func (a *agent[TTx]) Execute(ctx context.Context, q *agentv1.ExecuteRequest) (*agentv1.ExecuteResponse, error) {
	p := permitOf(q.GetPermit())
	if p.ExecutionID != q.GetExecutionId() {
		return nil, &contract.InvalidError{Path: "/permit/execution_id", Problem: "must be the execution's"}
	}
	m, fence := a.mutation(ctx, "Execute", metaOf(q), executeContent(q))
	m.Identities = []broker.Identity{executionIdentity(p.ExecutionID), {Kind: "permit", Value: p.ID}}
	peer := caller(ctx).URI
	m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
		open, err := fence.And(ctx, fencing.AdmissionOpen(agentID))
		if err != nil {
			return contract.Receipt{}, err
		}
		if p.Token < q.GetPermit().GetLowestToken() {
			return contract.Receipt{}, fencing.ErrVoid
		}
		if _, err := open.ConsumePermit(ctx, peer, p, a.now()); err != nil {
			return contract.Receipt{}, err
		}
		_, err = fence.StartTask(ctx, p.ExecutionID, m.Meta.OperationID)
		return contract.Receipt{}, err
	}
	m.Invoke = a.invocation(p.ExecutionID, q.GetNumber(), p.Deadline)
	receipt, err := answered(a.broker.Mutate(ctx, *m))
	return &agentv1.ExecuteResponse{Receipt: receipt}, err
}

// ExecuteAuthorized executes what the dispatcher has decided on. The agent does not decide again, has no permit for it, and falls
// back to nothing (R67); it looks at the session, the adapter's name, and the exclusive deadline (R64, R66, R68).
func (a *agent[TTx]) ExecuteAuthorized(ctx context.Context, q *agentv1.ExecuteAuthorizedRequest) (
	*agentv1.ExecuteAuthorizedResponse, error,
) {
	m, fence := a.mutation(ctx, "ExecuteAuthorized", metaOf(q), authorizedContent(q))
	m.Identities = []broker.Identity{executionIdentity(q.GetExecutionId())}
	m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
		if q.GetAdapter() != "mock" {
			return contract.Receipt{}, ErrNotMock
		}
		if _, err := a.space.Hold(ctx, a.store.Values(tx), fencing.AdmissionOpen(agentID)); err != nil {
			return contract.Receipt{}, err
		}
		if a.over(q.GetDeadlineMs()) {
			return notInvoked(fencing.ErrExpired, "the deadline was reached before it was claimed"), nil
		}
		_, err := fence.StartTask(ctx, q.GetExecutionId(), m.Meta.OperationID)
		return contract.Receipt{}, err
	}
	m.Invoke = a.invocation(q.GetExecutionId(), q.GetNumber(), q.GetDeadlineMs())
	receipt, err := answered(a.broker.Mutate(ctx, *m))
	return &agentv1.ExecuteAuthorizedResponse{Receipt: receipt}, err
}

// invocation makes the call, once UNKNOWN is committed: it looks at the deadline again, and registers the call before it is live, so
// that no barrier is reached without it (R60, R65, R89). Every error of the adapter leaves UNKNOWN (R69).
func (a *agent[TTx]) invocation(execution, number string, deadlineMS int64) func(context.Context, broker.Call) (contract.Receipt, error) {
	return func(_ context.Context, c broker.Call) (contract.Receipt, error) {
		time.Sleep(time.Duration(a.delay.Load()))
		if a.over(deadlineMS) {
			return notInvoked(fencing.ErrExpired, "the deadline was reached before the adapter was invoked"), nil
		}
		leave, err := a.gate.Enter(execution)
		if err != nil {
			f, _ := contract.FailureOf(err)
			return notInvoked(f, "admission was closed before the adapter was invoked"), nil
		}
		ref, err := a.adapter.invoke(execution, number, c, leave)
		return contract.Receipt{Result: contract.ResultApplied, Ref: ref}, err
	}
}

func (a *agent[TTx]) over(deadlineMS int64) bool {
	return fencing.Before(a.now(), time.UnixMilli(deadlineMS)) != nil
}

// notInvoked is the durable evidence that the adapter was not invoked, and never will be for this operation.
func notInvoked(f *contract.Failure, why string) contract.Receipt {
	return contract.Receipt{Result: contract.ResultNotApplied, Detail: why, Failure: f}
}

// permitOf reads a permit. Its agent and its cell are this one: the message came to nobody else.
func permitOf(p *agentv1.Permit) fencing.Permit {
	return fencing.Permit{
		ID: p.GetPermitId(), Token: p.GetFencingToken(), Epoch: fencing.Epoch(p.GetDispatcherEpoch()),
		PermitRequest: fencing.PermitRequest{
			Resource: p.GetResource(), ReservationID: p.GetReservationId(), ExecutionID: p.GetExecutionId(),
			ExpectedRevision: 1, Deadline: p.GetDeadlineMs(),
		},
		Binding: fencing.Binding{AgentID: agentID, CellID: cellID, BootID: p.GetBootId(), Generation: p.GetSessionGeneration()},
	}
}

// endPermits records which permits of a resource are void, as the dispatcher has just told it with one of them (R73). It knows what it
// was told: a message that slept since before its permit's end is refused from the next permit of the resource on, or once the agent
// has asked for its own one again. Whoever cannot wait for that has the resource itself refuse low tokens.
func (a *agent[TTx]) endPermits(ctx context.Context, told *agentv1.Permit) error {
	if told.GetLowestToken() <= 1 { // there was none before it
		return nil
	}
	return a.tx(ctx, func(ctx context.Context, tx TTx) error {
		fence, err := a.space.Hold(ctx, a.store.Values(tx), fencing.SessionIs(a.dispatcher()))
		if err == nil {
			_, err = fence.EndPermits(ctx, told.GetResource(), told.GetLowestToken()-1)
		}
		return err
	})
}

// settle advances what says UNKNOWN by the adapter's ledger, once nothing can be running any more. Nothing is invoked again.
func (a *agent[TTx]) settle(ctx context.Context) (settled int, err error) {
	page, err := a.broker.ListUnresolvedMutations(ctx, broker.Page{Tenant: a.cfg.Tenant})
	for _, u := range page {
		if u.Method != method("Execute").Name && u.Method != method("ExecuteAuthorized").Name {
			continue
		}
		if _, err := a.broker.ResolveMutation(ctx, u.MutationRef, "agent-reconciler", a.adapter.evidence); err != nil {
			return settled, err
		}
		settled++
	}
	return settled, err
}
