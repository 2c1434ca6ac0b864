package dispatch

import (
	"context"
	"path"
	"sync/atomic"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store"
)

// dispatcher serves seven of the methods, and calls the agent's.
type dispatcher[TTx any] struct {
	*node[TTx]

	epoch      fencing.Epoch            // of this process's time of office
	failQueue  atomic.Int64             // how many of the next facts cannot be queued
	wake       map[string]chan struct{} // by source: something was queued
	publishers func()                   // ends them
}

// newDispatcher starts a dispatcher, which takes office: every epoch before is fenced (R111). Agents are approved in the same
// transaction; what one says of itself later approves nothing (R40, R115).
func newDispatcher[TTx any](ctx context.Context, cfg config, st store.Store[TTx]) (*dispatcher[TTx], error) {
	n, err := newNode(cfg, st, agentURI)
	if err != nil {
		return nil, err
	}
	d := &dispatcher[TTx]{node: n}
	err = d.tx(ctx, func(ctx context.Context, tx TTx) error {
		values := d.store.Values(tx)
		o, err := d.space.TakeOffice(ctx, values, office)
		if err != nil {
			return err
		}
		fence, err := d.space.Hold(ctx, values, fencing.EpochIs(office, o.Epoch))
		if err != nil {
			return err
		}
		d.epoch = o.Epoch
		for _, uri := range cfg.Approved {
			if _, err := fence.ApproveAgent(ctx, uri, path.Base(uri), cellID); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		sources := []string{ofDispatcher}
		for _, uri := range cfg.Approved {
			sources = append(sources, factsOf(path.Base(uri)))
		}
		d.startPublishing(ctx, sources)
	}
	return d, err
}

// mutation is what all mutations that the dispatcher serves have in common: the agent's session, the epoch that it names and the
// epoch of this very process are held until the transaction ends (R112, R114, R116, R118).
func (d *dispatcher[TTx]) mutation(ctx context.Context, name string, meta contract.RequestMeta, content *contract.Content) (
	*broker.Mutation[TTx], *fencing.Fence,
) {
	id := caller(ctx)
	checks := []fencing.Check{
		fencing.SessionIs(fencing.CallerOf(id.URI, meta)), fencing.EpochIs(office, fencing.Epoch(meta.DispatcherEpoch)), d.inOffice(),
	}
	fence := &fencing.Fence{}
	return &broker.Mutation[TTx]{
		Tenant: d.cfg.Tenant, AgentID: agentOf(id), Meta: meta, Method: method(name), Digest: content.Digest(),
		Guard: func(ctx context.Context, tx TTx) (err error) {
			*fence, err = d.space.Hold(ctx, d.store.Values(tx), checks...)
			return err
		},
	}, fence
}

// inOffice holds while this process is the active one: a deposed dispatcher does nothing.
func (d *dispatcher[TTx]) inOffice() fencing.Check { return fencing.EpochIs(office, d.epoch) }

// ActivateAgent makes a new session for an approved agent, with the next generation; every session before is fenced (R36, R41). The
// content is the boot, the cell and the certificate (R38). A repeated request is told the same generation, and that it is history if
// a newer activation has taken its place: it installs nothing (R37, R39).
func (d *dispatcher[TTx]) ActivateAgent(ctx context.Context, q *agentv1.ActivateAgentRequest) (*agentv1.ActivateAgentResponse, error) {
	meta, id := metaOf(q), caller(ctx)
	if meta.IdempotencyKey != meta.OperationID {
		return nil, &contract.InvalidError{Path: "/meta/idempotency_key", Problem: "must be the activation's operation id"}
	}
	m, fence := d.mutation(ctx, "ActivateAgent", meta, contract.NewContent("ActivateAgent").
		Text("boot_id", meta.BootID).Text("cell_id", meta.CellID).Bytes("certificate", id.Fingerprint[:]))
	m.Guard = func(ctx context.Context, tx TTx) (err error) { // there is no session yet
		*fence, err = d.space.Hold(ctx, d.store.Values(tx), d.inOffice())
		return err
	}
	m.Apply = func(ctx context.Context, _ TTx) (contract.Receipt, error) {
		says := fencing.Binding{AgentID: agentOf(id), CellID: meta.CellID, BootID: meta.BootID}
		s, err := fence.ActivateAgent(ctx, id.URI, says, d.epoch)
		return contract.Receipt{Result: contract.ResultApplied, Before: s.Generation - 1, After: s.Generation, Ref: string(s.Epoch)}, err
	}
	r, err := d.broker.Mutate(ctx, *m)
	receipt, err := answered(r, err)
	if err != nil {
		return nil, err
	}
	now, err := d.sessionOf(ctx, id.URI)
	return &agentv1.ActivateAgentResponse{
		Receipt: receipt, DispatcherEpoch: r.Ref, Superseded: now.Generation != r.After || string(now.Epoch) != r.Ref,
	}, err
}

// sessionOf reads the current session of an identity; nothing is written because of it.
func (d *dispatcher[TTx]) sessionOf(ctx context.Context, uri string) (s fencing.Session, err error) {
	err = d.look(ctx, func(ctx context.Context, values store.Values) error {
		s, err = d.space.Session(ctx, values, uri)
		return err
	})
	return s, err
}

// GetAgentStatus tells an agent its session. It changes nothing (R107, R109).
func (d *dispatcher[TTx]) GetAgentStatus(ctx context.Context, _ *agentv1.GetAgentStatusRequest) (*agentv1.GetAgentStatusResponse, error) {
	s, err := d.sessionOf(ctx, caller(ctx).URI)
	if err == nil && s.AgentID == "" {
		err = fencing.ErrNotApproved
	}
	if err != nil {
		return nil, err
	}
	return &agentv1.GetAgentStatusResponse{SessionGeneration: s.Generation, DispatcherEpoch: string(s.Epoch)}, nil
}

// GetBootstrap needs a certificate and no session, and tells no secret (R107, A24).
func (d *dispatcher[TTx]) GetBootstrap(ctx context.Context, _ *agentv1.GetBootstrapRequest) (*agentv1.GetBootstrapResponse, error) {
	reply := &agentv1.GetBootstrapResponse{ProtocolVersions: []string{protocolVersion}}
	err := d.look(ctx, func(ctx context.Context, values store.Values) error {
		o, err := d.space.Office(ctx, values, office)
		reply.DispatcherEpoch = string(o.Epoch)
		return err
	})
	return reply, err
}
