package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/grpcerr"
	"github.com/confirmexec/confirmexec/store"
)

// agent serves seven of the methods, and calls the dispatcher's.
type agent[TTx any] struct {
	*node[TTx]

	adapter *mockAdapter
	gate    *fencing.Gate
	delay   atomic.Int64 // before an invocation, in nanoseconds: time for a deadline to pass

	sessionMu sync.Mutex
	session   fencing.Session // the one that this process was given; the zero one before
}

// newAgent starts an agent: it ends the session of the process before, and its gate is as its durable admission stands. The calls of
// a mock do not outlive its process, so that none is active (R49, R116).
func newAgent[TTx any](ctx context.Context, cfg config, st store.Store[TTx]) (*agent[TTx], error) {
	n, err := newNode(cfg, st, dispatcherURI)
	if err != nil {
		return nil, err
	}
	a := &agent[TTx]{node: n, adapter: &mockAdapter{path: cfg.Ledger, trace: cfg.Trace}}
	err = a.tx(ctx, func(ctx context.Context, tx TTx) error {
		values := a.store.Values(tx)
		admission, err := a.space.Admission(ctx, values, agentID)
		if err != nil {
			return err
		}
		a.gate = fencing.NewGate(admission)
		s, err := a.space.Session(ctx, values, dispatcherURI)
		if err != nil || s.BootID == "" {
			return err
		}
		_, err = a.space.LeaveSession(ctx, values, dispatcherURI)
		return err
	})
	return a, err
}

// mutation is what all mutations that the agent serves have in common: the caller's session is held, before anything else, until the
// transaction ends, and the fence is handed on (R86, R112, R114, R118).
func (a *agent[TTx]) mutation(ctx context.Context, name string, meta contract.RequestMeta, digest contract.Digest) (
	*broker.Mutation[TTx], *fencing.Fence,
) {
	fence, who := &fencing.Fence{}, fencing.CallerOf(caller(ctx).URI, meta)
	return &broker.Mutation[TTx]{
		Tenant: a.cfg.Tenant, AgentID: agentID, Meta: meta, Method: method(name), Digest: digest,
		Guard: func(ctx context.Context, tx TTx) (err error) {
			*fence, err = a.space.Hold(ctx, a.store.Values(tx), fencing.SessionIs(who))
			return err
		},
	}, fence
}

// ofDispatcher refuses a reader who is not the dispatcher.
func (a *agent[TTx]) ofDispatcher(ctx context.Context) error {
	if caller(ctx).URI != dispatcherURI {
		return fencing.ErrNotApproved
	}
	return nil
}

// GetAgentStatus tells how the agent stands. It changes nothing (R107, R109).
func (a *agent[TTx]) GetAgentStatus(ctx context.Context, _ *agentv1.GetAgentStatusRequest) (*agentv1.GetAgentStatusResponse, error) {
	if err := a.ofDispatcher(ctx); err != nil {
		return nil, err
	}
	reply := &agentv1.GetAgentStatusResponse{ActiveCalls: int64(len(a.gate.Calls()))}
	err := a.look(ctx, func(ctx context.Context, values store.Values) error {
		s, err := a.space.Session(ctx, values, dispatcherURI)
		if err != nil {
			return err
		}
		admission, err := a.space.Admission(ctx, values, agentID)
		reply.SessionGeneration, reply.DispatcherEpoch = s.Generation, string(s.Epoch)
		reply.AdmissionGeneration, reply.Open, reply.Stopped = admission.Generation, admission.Open, admission.Stopped
		return err
	})
	return reply, err
}

// QueryExecution tells what became of an execution: the receipt of the operation that has it, or that nothing is recorded, which is
// no proof (R109, R110). It needs no session: the caller of a session that has ended asks in its next one (R121).
func (a *agent[TTx]) QueryExecution(ctx context.Context, q *agentv1.QueryExecutionRequest) (*agentv1.QueryExecutionResponse, error) {
	if err := a.ofDispatcher(ctx); err != nil {
		return nil, err
	}
	st, err := a.broker.QueryMutation(ctx, executionRef(a.cfg.Tenant, q.GetExecutionId()))
	if err != nil {
		return nil, err
	}
	return &agentv1.QueryExecutionResponse{Receipt: grpcerr.ReceiptToProto(st.Receipt)}, nil
}

// executionRef names the mutation that has an execution.
func executionRef(tenant, execution string) broker.MutationRef {
	return broker.MutationRef{Tenant: tenant, Identity: executionIdentity(execution)}
}

func executionIdentity(execution string) broker.Identity {
	return broker.Identity{Kind: "execution", Value: execution}
}

// now is the agent's clock, which deadlines are judged by, with no allowance for skew (R64, A10).
func (a *agent[TTx]) now() time.Time { return time.Now() }
