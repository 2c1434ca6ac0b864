package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/grpcerr"
	"github.com/confirmexec/confirmexec/store"
)

// permitLife is how long a permit may be used for.
const permitLife = 10 * time.Minute

// resourceOf is the resource of a reservation, whose id says it: "line-1/42".
func resourceOf(reservation string) string {
	resource, _, _ := strings.Cut(reservation, "/")
	return resource
}

// GetExecutionPermit is a mutation in spite of its name (R75): it issues the one permit of a reservation (R70-R74), and an execution
// has one for ever (R76). A repeated request is told the same permit, and that it is void if the reservation is over.
func (d *dispatcher[TTx]) GetExecutionPermit(ctx context.Context, q *agentv1.GetExecutionPermitRequest) (
	*agentv1.GetExecutionPermitResponse, error,
) {
	peer := caller(ctx).URI
	m, fence := d.mutation(ctx, "GetExecutionPermit", metaOf(q), contract.NewContent("GetExecutionPermit").
		Text("reservation_id", q.GetReservationId()).Text("execution_id", q.GetExecutionId()).
		Int("expected_revision", q.GetExpectedRevision()))
	m.Apply = func(ctx context.Context, _ TTx) (contract.Receipt, error) {
		p, r, err := fence.IssuePermit(ctx, peer, fencing.PermitRequest{
			Resource: resourceOf(q.GetReservationId()), ReservationID: q.GetReservationId(), ExecutionID: q.GetExecutionId(),
			ExpectedRevision: q.GetExpectedRevision(), Deadline: time.Now().Add(permitLife).UnixMilli(),
		})
		return contract.Receipt{Result: contract.ResultApplied, Before: r.Revision - 1, After: r.Revision, Ref: p.ID}, err
	}
	receipt, err := answered(d.broker.Mutate(ctx, *m))
	if err != nil {
		return nil, err
	}
	p, err := d.permit(ctx, q.GetExecutionId())
	return &agentv1.GetExecutionPermitResponse{Receipt: receipt, Permit: p.toProto(), Void: !p.valid}, err
}

// toldPermit is a permit as the agent is told it, with how its resource stands.
type toldPermit struct {
	fencing.Permit

	valid  bool
	lowest int64 // the token of the resource that is still in force, or will be: every lower one is void (R73)
}

// permit reads the permit of an execution.
func (d *dispatcher[TTx]) permit(ctx context.Context, execution string) (p toldPermit, err error) {
	err = d.look(ctx, func(ctx context.Context, values store.Values) error {
		p.Permit, p.valid, err = d.space.Permit(ctx, values, execution)
		if err != nil || p.ID == "" {
			return err
		}
		r, err := d.space.Reservation(ctx, values, p.Resource)
		if p.lowest = r.Token; r.State != fencing.ReservationActive {
			p.lowest++
		}
		return err
	})
	return p, err
}

func (p toldPermit) toProto() *agentv1.Permit {
	return &agentv1.Permit{
		PermitId: p.ID, Resource: p.Resource, ReservationId: p.ReservationID, ExecutionId: p.ExecutionID, FencingToken: p.Token,
		DispatcherEpoch: string(p.Epoch), BootId: p.Binding.BootID, SessionGeneration: p.Binding.Generation, DeadlineMs: p.Deadline,
		LowestToken: p.lowest,
	}
}

// reserve reserves a resource for the agent, on the dispatcher's own account.
func (d *dispatcher[TTx]) reserve(ctx context.Context, o order) (answer, error) {
	var r fencing.Reservation
	err := d.tx(ctx, func(ctx context.Context, tx TTx) error {
		fence, err := d.space.Hold(ctx, d.store.Values(tx), d.inOffice())
		if err == nil {
			r, err = fence.Reserve(ctx, resourceOf(o.Reservation), o.Reservation, agentID)
		}
		return err
	})
	return answer{Count: r.Revision, Text: string(r.State)}, err
}

// fence keeps a reservation from being issued a permit, and the one that it was from being sent (R72, R73).
func (d *dispatcher[TTx]) fence(ctx context.Context, o order) (answer, error) {
	return d.end(ctx, o.Reservation, func(ctx context.Context, f fencing.Fence, l fencing.Lease) (fencing.Reservation, error) {
		return f.FenceReservation(ctx, resourceOf(o.Reservation), l)
	})
}

// permitRecord is what the permit of a reservation is called among the records of what may go on here.
func permitRecord(reservation string, token int64) string {
	return fmt.Sprintf("permit-%s-%d", reservation, token)
}

// end fences or releases a reservation, which stops its permit in the same transaction: no Execute is claimed with that any more (R73).
func (d *dispatcher[TTx]) end(ctx context.Context, reservation string,
	over func(ctx context.Context, f fencing.Fence, l fencing.Lease) (fencing.Reservation, error),
) (answer, error) {
	var r fencing.Reservation
	err := d.tx(ctx, func(ctx context.Context, tx TTx) error {
		values := d.store.Values(tx)
		fence, err := d.space.Hold(ctx, values, d.inOffice())
		if err != nil {
			return err
		}
		standing, err := d.space.Reservation(ctx, values, resourceOf(reservation))
		if err != nil {
			return err
		}
		lease := fencing.Lease{ReservationID: reservation, AgentID: agentID, Token: standing.Token}
		if r, err = over(ctx, fence, lease); err != nil {
			return err
		}
		return stopRecord(ctx, fence, permitRecord(lease.ReservationID, lease.Token))
	})
	return answer{Count: r.Revision, Text: string(r.State)}, err
}

// release frees a resource, with what is known of how its execution ended: nobody's word but the receipt's (R117, A25).
func (d *dispatcher[TTx]) release(ctx context.Context, o order) (answer, error) {
	evidence := fencing.Evidence{}
	if o.Execution != "" {
		st, err := d.broker.QueryMutation(ctx, executionRef(d.cfg.Tenant, o.Execution))
		if err != nil {
			return answer{}, err
		}
		evidence = fencing.Evidence{ExecutionID: o.Execution, Result: st.Receipt.Result, By: "dispatcher", Detail: st.Receipt.Detail}
	}
	return d.end(ctx, o.Reservation, func(ctx context.Context, f fencing.Fence, l fencing.Lease) (fencing.Reservation, error) {
		return f.ReleaseReservation(ctx, resourceOf(o.Reservation), l, evidence)
	})
}

// execute calls Execute with the permit that there is. Its claim is committed before anything is sent, and an unknown outcome is
// queried, never sent anew (R52). The permit's record is held in the transaction of the claim, which its end needs too: what is void
// is not sent (R73).
func (d *dispatcher[TTx]) execute(ctx context.Context, o order) (answer, error) {
	p, err := d.permit(ctx, o.Execution)
	if err == nil && o.Permit != "" {
		p, err = d.madeUp(ctx, o)
	}
	if err != nil {
		return answer{}, err
	}
	q := &agentv1.ExecuteRequest{ExecutionId: o.Execution, Permit: p.toProto(), Number: o.Number}
	if q.Meta, err = d.meta(ctx, o); err != nil {
		return answer{}, err
	}
	send := func(ctx context.Context, raw bool) (contract.Receipt, error) {
		remote, done, err := d.remote(raw)
		if err != nil {
			return contract.Receipt{}, err
		}
		defer done()
		reply, err := remote.Execute(ctx, q)
		if err != nil {
			return contract.Receipt{}, err
		}
		return grpcerr.ReceiptFromProto(reply.GetReceipt())
	}
	allow := func(ctx context.Context, f fencing.Fence) error {
		record, err := f.StartTask(ctx, permitRecord(p.ReservationID, p.Token), recordApproval)
		if err == nil && record.State != fencing.TaskRunning {
			err = fencing.ErrVoid
		}
		return err
	}
	return d.originate(ctx, o, origin{"Execute", executeContent(q), allow, send})
}

// madeUp is a permit that nobody issued, or that was, in a message that says nothing of how its resource stands now.
func (d *dispatcher[TTx]) madeUp(ctx context.Context, o order) (p toldPermit, err error) {
	s, err := d.sessionOf(ctx, agentURI)
	p.Permit = fencing.Permit{
		ID: o.Permit, Token: o.Token, Epoch: d.epoch, PermitRequest: fencing.PermitRequest{
			Resource: resourceOf(o.Reservation), ReservationID: o.Reservation, ExecutionID: o.Execution,
			Deadline: time.Now().Add(permitLife).UnixMilli(),
		},
	}
	p.Binding = fencing.Binding{BootID: s.BootID, Generation: o.Generation}
	if o.PermitBoot != "" {
		p.Binding.BootID = o.PermitBoot
	}
	return p, err
}
