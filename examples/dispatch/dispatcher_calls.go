package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
	"github.com/confirmexec/confirmexec/store"
)

// meta is that of a request to the agent: the operation, the session that the agent was given, and this process's epoch. An order
// may say another generation, boot or epoch, as a message has it that slept somewhere.
func (d *dispatcher[TTx]) meta(ctx context.Context, o order) (*pb.RequestMeta, error) {
	s, err := d.sessionOf(ctx, agentURI)
	m := contract.RequestMeta{
		ProtocolVersion: protocolVersion, OperationID: o.Op, IdempotencyKey: o.Op, AgentID: agentID, CellID: cellID,
		BootID: s.BootID, SessionGeneration: s.Generation, DispatcherEpoch: string(d.epoch),
	}
	if o.Key != "" {
		m.IdempotencyKey = o.Key
	}
	if o.Boot != "" {
		m.SessionGeneration, m.BootID = o.Generation, o.Boot
	}
	if o.Epoch != "" {
		m.DispatcherEpoch = o.Epoch
	}
	return grpcerr.MetaToProto(m), err
}

// decision is what the dispatcher has decided about an execution, once and for ever (R58, A26).
type decision struct {
	Verdict   string `json:"verdict"` // issued or refused
	Operation string `json:"operation"`
	AgentID   string `json:"agent_id"`
}

// The two verdicts.
const (
	issued  = "issued"
	refused = "refused"
)

// ErrRefused is the answer about an execution that the dispatcher has decided against: it is never sent (R59).
var ErrRefused = &contract.Failure{
	Code: contract.PermissionDenied, Reason: "example.dispatch.refused", Effect: contract.EffectNone,
	Message: "the dispatcher has decided against this execution; it was not sent, and never will be",
}

func (d *dispatcher[TTx]) decisionID(execution string) store.ValueID {
	return store.ValueID{Tenant: d.cfg.Tenant, Name: "decision/" + execution}
}

// decide makes the one decision in the transaction that claims the operation, before any send (R58). What it rests on is the
// dispatcher's own record of the task, which does not change until the commit: for a stopped task nothing is issued (R93).
func (d *dispatcher[TTx]) decide(ctx context.Context, fence fencing.Fence, values store.Values, o order) (decision, error) {
	made := decision{Verdict: issued, Operation: o.Op, AgentID: agentID}
	t, err := fence.StartTask(ctx, taskRecord, recordApproval)
	if err != nil {
		return made, err
	}
	if t.State != fencing.TaskRunning || !policy(o.Number) {
		made.Verdict = refused
	}
	content, err := json.Marshal(made)
	if err != nil {
		return made, err
	}
	_, err = values.Swap(ctx, store.SwapParams{ValueID: d.decisionID(o.Execution), Content: content})
	if errors.Is(err, store.ErrRevision) {
		err = contract.ErrSecondOperation
	}
	return made, err
}

// decided reads the decision about an execution; the zero one if there is none.
func (d *dispatcher[TTx]) decided(ctx context.Context, values store.Values, execution string) (made decision, err error) {
	v, err := values.Load(ctx, d.decisionID(execution))
	if err == nil && v.Revision > 0 {
		err = json.Unmarshal(v.Content, &made)
	}
	return made, err
}

// origin is what originates: allow, if it is set, is what else has to hold in the transaction that claims it.
type origin struct {
	name   string
	digest contract.Digest
	allow  func(ctx context.Context, f fencing.Fence) error
	send   func(ctx context.Context, raw bool) (contract.Receipt, error)
}

// originate decides about an execution, commits UNKNOWN, and sends it, at most once for all time. What the agent answers is the
// receipt; a failure that proves that nothing happened is evidence too; everything else leaves UNKNOWN, for reconcile (R52, R63).
func (d *dispatcher[TTx]) originate(ctx context.Context, o order, from origin) (answer, error) {
	if o.Raw { // as somebody sends it who does not keep to the contract, or sent it long ago
		r, err := from.send(ctx, true)
		return answer{Receipt: &r}, err
	}
	var fence fencing.Fence
	m := broker.Mutation[TTx]{
		Tenant: d.cfg.Tenant, AgentID: agentID, Method: method(from.name), Digest: from.digest,
		Meta:       contract.RequestMeta{OperationID: o.Op, IdempotencyKey: o.Op},
		Identities: []broker.Identity{executionIdentity(o.Execution)},
		Guard: func(ctx context.Context, tx TTx) (err error) {
			fence, err = d.space.Hold(ctx, d.store.Values(tx), d.inOffice())
			return err
		},
		Apply: func(ctx context.Context, tx TTx) (contract.Receipt, error) {
			made, err := d.decide(ctx, fence, d.store.Values(tx), o)
			if err == nil && made.Verdict == issued && from.allow != nil {
				err = from.allow(ctx, fence)
			}
			if err != nil || made.Verdict == issued {
				return contract.Receipt{}, err
			}
			return contract.Receipt{Result: contract.ResultRefused, Detail: "decided by policy, or the task is stopped", Failure: ErrRefused}, nil
		},
		Invoke: func(ctx context.Context, _ broker.Call) (contract.Receipt, error) {
			r, err := from.send(ctx, false)
			if call, ok := errors.AsType[*grpcerr.CallError](err); ok && call.Decision.Effect == contract.EffectNone {
				f, _ := contract.FailureOf(err)
				return contract.Receipt{Result: contract.ResultNotApplied, Detail: err.Error(), Failure: f}, nil
			}
			return r, err
		},
	}
	r, err := d.broker.Mutate(ctx, m)
	return answer{Receipt: &r}, err
}

// executeAuthorized sends an execution that it decided to issue (R58, R59).
func (d *dispatcher[TTx]) executeAuthorized(ctx context.Context, o order) (answer, error) {
	adapter := o.Adapter
	if adapter == "" {
		adapter = "mock"
	}
	q := &agentv1.ExecuteAuthorizedRequest{ExecutionId: o.Execution, DeadlineMs: o.DeadlineMS, Number: o.Number, Adapter: adapter}
	var err error
	if q.Meta, err = d.meta(ctx, o); err != nil {
		return answer{}, err
	}
	send := func(ctx context.Context, raw bool) (contract.Receipt, error) {
		remote, done, err := d.remote(raw)
		if err != nil {
			return contract.Receipt{}, err
		}
		defer done()
		reply, err := remote.ExecuteAuthorized(ctx, q)
		if err != nil {
			return contract.Receipt{}, err
		}
		return grpcerr.ReceiptFromProto(reply.GetReceipt())
	}
	return d.originate(ctx, o, origin{"ExecuteAuthorized", authorizedContent(q), nil, send})
}

// query asks the agent what became of an execution.
func (d *dispatcher[TTx]) query(ctx context.Context, o order) (answer, error) {
	r, err := d.queryExecution(ctx, o.Execution)
	return answer{Receipt: &r}, err
}

func (d *dispatcher[TTx]) queryExecution(ctx context.Context, execution string) (contract.Receipt, error) {
	remote, done, err := d.remote(false)
	if err != nil {
		return contract.Receipt{}, err
	}
	defer done()
	meta, err := d.meta(ctx, order{})
	if err != nil {
		return contract.Receipt{}, err
	}
	reply, err := remote.QueryExecution(ctx, &agentv1.QueryExecutionRequest{Meta: meta, ExecutionId: execution})
	if err != nil {
		return contract.Receipt{}, err
	}
	return grpcerr.ReceiptFromProto(reply.GetReceipt())
}

// reconcile finds out what became of an execution whose outcome is unknown here: it asks the agent about the original one, and keeps
// UNKNOWN if there is no evidence. There is nothing in it that could make an operation, an execution or a permit (R120).
func (d *dispatcher[TTx]) reconcile(ctx context.Context, o order) (answer, error) {
	found, err := broker.Reconcile(ctx, broker.Original{
		Query: func(ctx context.Context) (contract.Receipt, error) { return d.queryExecution(ctx, o.Execution) },
	})
	if err != nil {
		return answer{Receipt: &found}, err
	}
	r, err := d.broker.ResolveMutation(ctx, executionRef(d.cfg.Tenant, o.Execution), "dispatcher-reconciler",
		func(context.Context, broker.Call) (contract.Receipt, error) {
			if !found.Result.Terminal() {
				return contract.Receipt{}, nil
			}
			found.By, found.Replayed = "", false
			if found.Detail == "" {
				found.Detail = "the agent's receipt says so"
			}
			return found, nil
		})
	return answer{Receipt: &r}, err
}

// standing reads what the dispatcher itself knows of an execution.
func (d *dispatcher[TTx]) standing(ctx context.Context, o order) (answer, error) {
	var made decision
	err := d.look(ctx, func(ctx context.Context, values store.Values) (err error) {
		made, err = d.decided(ctx, values, o.Execution)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	st, err := d.broker.QueryMutation(ctx, executionRef(d.cfg.Tenant, o.Execution))
	if err != nil {
		return answer{Text: made.Verdict}, err
	}
	return answer{Text: made.Verdict, Receipt: &st.Receipt}, nil
}

// admission opens or closes the agent's admission.
func (d *dispatcher[TTx]) admission(ctx context.Context, o order) (answer, error) {
	remote, done, err := d.remote(o.Raw)
	if err != nil {
		return answer{}, err
	}
	defer done()
	meta, err := d.meta(ctx, o)
	if err != nil {
		return answer{}, err
	}
	reply, err := remote.SetAdmissionState(again(ctx, o), &agentv1.SetAdmissionStateRequest{
		Meta: meta, BarrierId: o.Barrier, ExpectedGeneration: o.Expected, Open: o.Open,
	})
	if err != nil {
		return answer{}, err
	}
	return received(reply.GetReceipt())
}

// control pauses, resumes or stops an execution at the agent.
func (d *dispatcher[TTx]) control(ctx context.Context, o order) (answer, error) {
	remote, done, err := d.remote(o.Raw)
	if err != nil {
		return answer{}, err
	}
	defer done()
	meta, err := d.meta(ctx, o)
	if err != nil {
		return answer{}, err
	}
	reply, err := remote.ApplyTaskControl(again(ctx, o), &agentv1.ApplyTaskControlRequest{
		Meta: meta, ExecutionId: o.Execution, ExpectedTaskRevision: o.Expected, AuthorizationId: o.Authorization,
		Action: agentv1.TaskAction(agentv1.TaskAction_value["TASK_ACTION_"+o.Action]),
	})
	if err != nil {
		return answer{}, err
	}
	return received(reply.GetReceipt())
}

// approvedStop stops the task: durably here first, where the authoritative state is, and then at the agent, as often as it takes.
// What the agent answers changes nothing of the task's state here (R93).
func (d *dispatcher[TTx]) approvedStop(ctx context.Context, o order) (answer, error) {
	if says, err := fencing.ParseTaskIdentity(o.Tenant, o.Task); err == nil && says == task { // no other one's stop is this one's
		if err := d.stopTask(ctx); err != nil {
			return answer{}, err
		}
	}
	remote, done, err := d.remote(o.Raw)
	if err != nil {
		return answer{}, err
	}
	defer done()
	meta, err := d.meta(ctx, o)
	if err != nil {
		return answer{}, err
	}
	meta.OperationId, meta.IdempotencyKey = "", "" // every delivery is processed (R85)
	reply, err := remote.ApplyApprovedTaskControl(ctx, &agentv1.ApplyApprovedTaskControlRequest{
		Meta: meta, TenantId: o.Tenant, TaskId: o.Task,
	})
	if err != nil {
		return answer{}, err
	}
	return received(reply.GetReceipt())
}

// taskRecord is what the task is called here, and recordApproval what it was begun with.
var taskRecord = fmt.Sprintf("task-%d-%d", task.Tenant, task.Task)

const recordApproval = "approved"

func (d *dispatcher[TTx]) stopTask(ctx context.Context) error {
	return d.tx(ctx, func(ctx context.Context, tx TTx) error {
		fence, err := d.space.Hold(ctx, d.store.Values(tx), d.inOffice())
		if err != nil {
			return err
		}
		return stopRecord(ctx, fence, taskRecord)
	})
}

// stopRecord stops what goes on under a name, for ever.
func stopRecord(ctx context.Context, fence fencing.Fence, name string) error {
	t, err := fence.StartTask(ctx, name, recordApproval)
	if err != nil || t.State == fencing.TaskStopped {
		return err
	}
	_, err = fence.ControlTask(ctx, name, fencing.Control{Action: fencing.ActionStop, ExpectedRevision: t.Revision})
	return err
}

// task reads the dispatcher's own record of the task.
func (d *dispatcher[TTx]) task(ctx context.Context, _ order) (told answer, err error) {
	err = d.look(ctx, func(ctx context.Context, values store.Values) error {
		t, err := d.space.Task(ctx, values, taskRecord)
		told.Text, told.Count = string(t.State), t.Revision
		return err
	})
	return told, err
}

// agentStatus asks the agent how it stands.
func (d *dispatcher[TTx]) agentStatus(ctx context.Context, _ order) (answer, error) {
	remote, done, err := d.remote(false)
	if err != nil {
		return answer{}, err
	}
	defer done()
	meta, err := d.meta(ctx, order{})
	if err != nil {
		return answer{}, err
	}
	reply, err := remote.GetAgentStatus(ctx, &agentv1.GetAgentStatusRequest{Meta: meta})
	return answer{Status: standsAs(reply)}, err
}
