package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// order is one line of a process's stdin: what it is to do, with what. Most have few of the fields.
type order struct {
	Do string

	Op, Key, Execution, Number, Adapter string
	DeadlineMS, Expected, Token         int64
	Barrier, Reservation                string
	Permit, PermitBoot                  string
	Action, Authorization, Tenant, Task string
	Source, Fact, Kind, Content, Sum    string
	Upload, Target, Method, Address     string
	Open                                bool

	// A raw request is sent as it is, past this process's own records and memory; with other claims than those that are true.
	Raw         bool
	Generation  int64
	Boot, Epoch string
	Cell        string

	Again contract.Action // the action that was done before the operation is sent once more

	At   int    // arm: the commit to die at
	When string // before or after it
	N    int64
}

// answer is the line of stdout that answers an order.
type answer struct {
	Receipt *contract.Receipt
	Failure *failure
	Text    string
	Lines   []string
	Count   int64
	Flag    bool
	Status  *standing
}

// failure is why an order was not carried out.
type failure struct {
	Code     contract.FailureCode
	Reason   contract.Reason
	Effect   string
	Message  string
	Current  int64
	Delivery string          // of a call on the other side
	Action   contract.Action // what its caller does next
}

// standing is how an agent stands.
type standing struct {
	Generation, AdmissionGeneration, ActiveCalls int64
	Epoch                                        string
	Open, Stopped                                bool
}

func standsAs(r *agentv1.GetAgentStatusResponse) *standing {
	return &standing{
		Generation: r.GetSessionGeneration(), AdmissionGeneration: r.GetAdmissionGeneration(), ActiveCalls: r.GetActiveCalls(),
		Epoch: r.GetDispatcherEpoch(), Open: r.GetOpen(), Stopped: r.GetStopped(),
	}
}

// received is the answer that a reply's receipt makes.
func received(p *pb.Receipt) (answer, error) {
	r, err := grpcerr.ReceiptFromProto(p)
	return answer{Receipt: &r}, err
}

// again says that the action was done which the decision about an earlier send asked for.
func again(ctx context.Context, o order) context.Context {
	if o.Again == "" {
		return ctx
	}
	return grpcerr.WithActionDone(ctx, o.Again)
}

// failureOf is an error as it is told to the walk.
func failureOf(err error) *failure {
	told := &failure{Message: err.Error(), Effect: contract.EffectUnknown.String()}
	if f, ok := contract.FailureOf(err); ok {
		*told = failure{Code: f.Code, Reason: f.Reason, Effect: f.Effect.String(), Message: f.Message, Current: f.Current}
	}
	if call, ok := errors.AsType[*grpcerr.CallError](err); ok {
		told.Delivery, told.Action = call.Delivery.String(), call.Decision.Action
	}
	return told
}

// doer is a process that carries out orders.
type doer interface {
	do(ctx context.Context, o order) (answer, error)
}

// action carries out one kind of order.
type action func(ctx context.Context, o order) (answer, error)

// common are the orders that both processes know.
func (n *node[TTx]) common() map[string]action {
	return map[string]action{
		"connect": func(_ context.Context, o order) (answer, error) { return answer{}, n.connect(o.Address) },
		"lose_reply": func(_ context.Context, o order) (answer, error) {
			n.line.loseReply(o.Method)
			return answer{}, nil
		},
		"keys": n.keys,
		"log":  func(context.Context, order) (answer, error) { return answer{Lines: n.line.log()}, nil },
		"commits": func(context.Context, order) (answer, error) {
			return answer{Count: int64(n.killer.commits())}, nil
		},
		"arm": func(_ context.Context, o order) (answer, error) {
			n.killer.arm(o.At, o.When)
			return answer{}, nil
		},
	}
}

func (a *agent[TTx]) do(ctx context.Context, o order) (answer, error) {
	return carryOut(ctx, o, a.common(), map[string]action{
		"activate": a.activate, "permit": a.permit, "report": a.report, "publish": a.publish, "send_fact": a.sendFact,
		"request_upload": a.requestUpload, "put": a.put, "complete_upload": a.completeUpload, "bootstrap": a.bootstrap, "status": a.status,
		"settle": func(ctx context.Context, _ order) (answer, error) {
			n, err := a.settle(ctx)
			return answer{Count: int64(n)}, err
		},
		"barrier": func(ctx context.Context, o order) (answer, error) {
			st, err := a.broker.QueryMutation(ctx, barrierRef(a.cfg.Tenant, o.Barrier))
			if err != nil {
				return answer{}, err
			}
			return answer{Receipt: &st.Receipt}, nil
		},
		"end_call": func(_ context.Context, o order) (answer, error) {
			a.adapter.end(o.Execution)
			return answer{}, nil
		},
		"delay": func(_ context.Context, o order) (answer, error) {
			a.delay.Store(o.N)
			return answer{}, nil
		},
	})
}

func (d *dispatcher[TTx]) do(ctx context.Context, o order) (answer, error) {
	return carryOut(ctx, o, d.common(), map[string]action{
		"admission": d.admission, "execute": d.execute, "execute_authorized": d.executeAuthorized, "query": d.query,
		"reconcile": d.reconcile, "standing": d.standing, "control": d.control, "approved_stop": d.approvedStop,
		"agent_status": d.agentStatus, "reserve": d.reserve, "release": d.release, "fence": d.fence, "fact": d.fact,
		"task": d.task,
		"fail_queue": func(_ context.Context, o order) (answer, error) {
			d.failQueue.Store(o.N)
			return answer{}, nil
		},
		"epoch": func(context.Context, order) (answer, error) { return answer{Text: string(d.epoch)}, nil },
	})
}

func carryOut(ctx context.Context, o order, tables ...map[string]action) (answer, error) {
	for _, table := range tables {
		if act := table[o.Do]; act != nil {
			return act(ctx, o)
		}
	}
	return answer{}, fmt.Errorf("nobody knows the order %q", o.Do)
}
