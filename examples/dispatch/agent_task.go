package dispatch

import (
	"context"
	"strings"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
)

// ApplyTaskControl pauses, resumes or stops an execution, by compare-and-set on its revision (R77-R84). The content holds execution,
// revision, action and authorization, so that a key that is used again for another of them is in conflict (R78).
func (a *agent[TTx]) ApplyTaskControl(ctx context.Context, q *agentv1.ApplyTaskControlRequest) (*agentv1.ApplyTaskControlResponse, error) {
	control := fencing.Control{
		Action:           fencing.Action(strings.TrimPrefix(q.GetAction().String(), "TASK_ACTION_")),
		ExpectedRevision: q.GetExpectedTaskRevision(), Authorization: q.GetAuthorizationId(),
	}
	m, fence := a.mutation(ctx, "ApplyTaskControl", metaOf(q), contract.NewContent("ApplyTaskControl").
		Text("execution_id", q.GetExecutionId()).Int("expected_task_revision", control.ExpectedRevision).
		Text("action", string(control.Action)).Text("authorization_id", control.Authorization).Digest())
	m.Apply = func(ctx context.Context, _ TTx) (contract.Receipt, error) {
		return fence.ControlTask(ctx, q.GetExecutionId(), control)
	}
	receipt, err := answered(a.broker.Mutate(ctx, *m))
	return &agentv1.ApplyTaskControlResponse{Receipt: receipt}, err
}

// ApplyApprovedTaskControl stops a task for ever. It has no claim: every delivery is processed (R85). The gate closes before anything
// is hung up, success is only told when no registered call is active, and after a timeout the barrier stays closed (R86-R92).
func (a *agent[TTx]) ApplyApprovedTaskControl(ctx context.Context, q *agentv1.ApplyApprovedTaskControlRequest) (
	*agentv1.ApplyApprovedTaskControlResponse, error,
) {
	says, err := fencing.ParseTaskIdentity(q.GetTenantId(), q.GetTaskId())
	if err != nil {
		return nil, err
	}
	check := fencing.SessionIs(fencing.CallerOf(caller(ctx).URI, metaOf(q)))
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Drain)
	defer cancel()
	r, err := a.gate.ApplyApproved(ctx, fencing.ApprovedControl{
		Action: fencing.ActionStop, Says: says, Task: task,
		Guard: func(ctx context.Context) error {
			return a.tx(ctx, func(ctx context.Context, tx TTx) error {
				_, err := a.space.Hold(ctx, a.store.Values(tx), check)
				return err
			})
		},
		Persist: func(ctx context.Context, active int64) (r contract.Receipt, err error) {
			err = a.tx(ctx, func(ctx context.Context, tx TTx) error {
				fence, err := a.space.Hold(ctx, a.store.Values(tx), check)
				if err == nil {
					barrier := "approved-stop/" + q.GetTenantId() + "/" + q.GetTaskId()
					r, err = fence.StopAdmission(ctx, agentID, barrier, fencing.Epoch(q.GetMeta().GetDispatcherEpoch()), active)
				}
				return err
			})
			return r, err
		},
		HangUp:  a.adapter.hangUp,
		Observe: func(step fencing.ApprovedStep, active int64) { a.line.note(step, active) },
	})
	r.Method = method("ApplyApprovedTaskControl").Name
	receipt, err := answered(r, err)
	return &agentv1.ApplyApprovedTaskControlResponse{Receipt: receipt}, err
}
