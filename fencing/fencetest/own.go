package fencetest

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store"
)

// Of is the harness of package fencing on a store, in a tenant that has nothing there yet. Its log is a value of the tenant too. Its
// Restart keeps the store, and nothing but that: set one that opens the database again, where there is one.
func Of[TTx any](st store.Store[TTx], tenant string) Harness[TTx] {
	o := &own[TTx]{st: st, space: fencing.Space{Tenant: tenant}, written: map[string]bool{}}
	return o.harness()
}

const (
	scope   = "dispatcher"
	logName = "fencetest/log"
)

// own is package fencing on a store.
type own[TTx any] struct {
	st    store.Store[TTx]
	space fencing.Space

	mu      sync.Mutex
	written map[string]bool // the names of the values that were written, or tried to
}

func (o *own[TTx]) harness() Harness[TTx] {
	return Harness[TTx]{
		Offices:    Offices[TTx]{o.takeOffice, o.holdOffice},
		Sessions:   Sessions[TTx]{o.approve, o.activate, o.hold},
		Joins:      &Joins[TTx]{o.join, o.leave},
		Tokens:     &Tokens[TTx]{o.show},
		Admissions: &Admissions[TTx]{o.startAdmission, o.setAdmission, o.drain, o.stop, o.holdOpen, o.holdDrained},
		Tasks:      &Tasks[TTx]{o.startTask, o.control},
		Permits:    &Permits[TTx]{o.reserve, o.issue, o.fence, o.release, o.end, o.consume},
		Gate:       o.gate,
		Begin:      o.begin,
		Commit:     func(ctx context.Context, tx TTx) error { return o.st.Commit(ctx, tx, store.Closing{}) },
		Rollback:   o.st.Rollback,
		Append:     o.append,
		Lines:      o.lines,
		Snapshot:   o.snapshot,
		Restart:    func(*testing.T) Harness[TTx] { return o.again() },
		Store:      o.st,
		Tenant:     o.space.Tenant,
	}
}

// again is a new process's: it has the names of the values, for the snapshots, and else nothing.
func (o *own[TTx]) again() Harness[TTx] {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := &own[TTx]{st: o.st, space: o.space, written: maps.Clone(o.written)}
	return next.harness()
}

func (o *own[TTx]) begin(ctx context.Context) (TTx, error) {
	tx, _, err := o.st.Begin(ctx, store.Opening{ID: store.ID{Tenant: o.space.Tenant}})
	return tx, err
}

// values are the values in tx, whose writes are noted.
func (o *own[TTx]) values(tx TTx) store.Values { return noted{o.st.Values(tx), o.note} }

func (o *own[TTx]) note(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written[name] = true
}

type noted struct {
	store.Values
	note func(name string)
}

func (n noted) Swap(ctx context.Context, p store.SwapParams) (store.Value, error) {
	n.note(p.Name)
	return n.Values.Swap(ctx, p)
}

func (o *own[TTx]) id(name string) store.ValueID {
	return store.ValueID{Tenant: o.space.Tenant, Name: name}
}

// under holds the fence of a caller, with more checks.
func (o *own[TTx]) under(ctx context.Context, tx TTx, c fencing.Caller, more ...fencing.Check) (fencing.Fence, error) {
	return o.space.Hold(ctx, o.values(tx), append([]fencing.Check{fencing.SessionIs(c), fencing.EpochIs(scope, c.Epoch)}, more...)...)
}

func (o *own[TTx]) takeOffice(ctx context.Context, tx TTx) (fencing.Office, error) {
	return o.space.TakeOffice(ctx, o.values(tx), scope)
}

func (o *own[TTx]) holdOffice(ctx context.Context, tx TTx, e fencing.Epoch) error {
	_, err := o.space.Hold(ctx, o.values(tx), fencing.EpochIs(scope, e))
	return err
}

func (o *own[TTx]) approve(ctx context.Context, tx TTx, e fencing.Epoch, peer, agentID, cellID string) error {
	f, err := o.space.Hold(ctx, o.values(tx), fencing.EpochIs(scope, e))
	if err == nil {
		_, err = f.ApproveAgent(ctx, peer, agentID, cellID)
	}
	return err
}

func (o *own[TTx]) activate(ctx context.Context, tx TTx, e fencing.Epoch, peer string, says fencing.Binding) (int64, error) {
	f, err := o.space.Hold(ctx, o.values(tx), fencing.EpochIs(scope, e))
	if err != nil {
		return 0, err
	}
	s, err := f.ActivateAgent(ctx, peer, says, e)
	return s.Generation, err
}

func (o *own[TTx]) hold(ctx context.Context, tx TTx, c fencing.Caller) error {
	_, err := o.under(ctx, tx, c)
	return err
}

func (o *own[TTx]) join(ctx context.Context, tx TTx, peer string, given fencing.Session) error {
	_, err := o.space.JoinSession(ctx, o.values(tx), peer, given)
	return err
}

func (o *own[TTx]) leave(ctx context.Context, tx TTx, peer string) error {
	_, err := o.space.LeaveSession(ctx, o.values(tx), peer)
	return err
}

func (o *own[TTx]) show(ctx context.Context, tx TTx, c fencing.Caller, resource string, token int64, holder string) error {
	f, err := o.under(ctx, tx, c)
	if err == nil {
		_, err = f.ShowToken(ctx, resource, token, holder)
	}
	return err
}

func (o *own[TTx]) startAdmission(ctx context.Context, tx TTx, c fencing.Caller) error {
	f, err := o.under(ctx, tx, c)
	if err == nil {
		_, err = f.StartAdmission(ctx, c.Says.AgentID)
	}
	return err
}

func (o *own[TTx]) setAdmission(ctx context.Context, tx TTx, c fencing.Caller, r fencing.AdmissionRequest, active int64) (
	contract.Receipt, error,
) {
	f, err := o.under(ctx, tx, c)
	if err != nil {
		return contract.Receipt{}, err
	}
	return f.SetAdmission(ctx, c.Says.AgentID, r, active)
}

func (o *own[TTx]) drain(ctx context.Context, tx TTx, c fencing.Caller, barrierID string, active int64) (contract.Receipt, error) {
	f, err := o.under(ctx, tx, c)
	if err != nil {
		return contract.Receipt{}, err
	}
	return f.DrainAdmission(ctx, c.Says.AgentID, barrierID, active)
}

func (o *own[TTx]) stop(ctx context.Context, tx TTx, c fencing.Caller, barrierID string, active int64) (contract.Receipt, error) {
	f, err := o.under(ctx, tx, c)
	if err != nil {
		return contract.Receipt{}, err
	}
	return f.StopAdmission(ctx, c.Says.AgentID, barrierID, c.Epoch, active)
}

func (o *own[TTx]) holdOpen(ctx context.Context, tx TTx, c fencing.Caller) error {
	_, err := o.under(ctx, tx, c, fencing.AdmissionOpen(c.Says.AgentID))
	return err
}

func (o *own[TTx]) holdDrained(ctx context.Context, tx TTx, c fencing.Caller, barrierID string) error {
	_, err := o.under(ctx, tx, c, fencing.AdmissionDrained(c.Says.AgentID, barrierID))
	return err
}

func (o *own[TTx]) startTask(ctx context.Context, tx TTx, c fencing.Caller, executionID, authorization string) error {
	f, err := o.under(ctx, tx, c)
	if err == nil {
		_, err = f.StartTask(ctx, executionID, authorization)
	}
	return err
}

func (o *own[TTx]) control(ctx context.Context, tx TTx, c fencing.Caller, executionID string, r fencing.Control) (contract.Receipt, error) {
	f, err := o.under(ctx, tx, c)
	if err != nil {
		return contract.Receipt{}, err
	}
	return f.ControlTask(ctx, executionID, r)
}

func (o *own[TTx]) reserve(ctx context.Context, tx TTx, c fencing.Caller, resource, reservationID string) (fencing.Reservation, error) {
	f, err := o.under(ctx, tx, c)
	if err != nil {
		return fencing.Reservation{}, err
	}
	return f.Reserve(ctx, resource, reservationID, c.Says.AgentID)
}

func (o *own[TTx]) issue(ctx context.Context, tx TTx, c fencing.Caller, q fencing.PermitRequest) (fencing.Permit, error) {
	f, err := o.under(ctx, tx, c)
	if err != nil {
		return fencing.Permit{}, err
	}
	p, _, err := f.IssuePermit(ctx, c.Peer, q)
	return p, err
}

func (o *own[TTx]) fence(ctx context.Context, tx TTx, c fencing.Caller, resource string, l fencing.Lease) error {
	f, err := o.under(ctx, tx, c)
	if err == nil {
		_, err = f.FenceReservation(ctx, resource, l)
	}
	return err
}

func (o *own[TTx]) release(ctx context.Context, tx TTx, c fencing.Caller, resource string, l fencing.Lease, e fencing.Evidence) error {
	f, err := o.under(ctx, tx, c)
	if err == nil {
		_, err = f.ReleaseReservation(ctx, resource, l, e)
	}
	return err
}

func (o *own[TTx]) end(ctx context.Context, tx TTx, c fencing.Caller, resource string, token int64) error {
	f, err := o.under(ctx, tx, c)
	if err == nil {
		_, err = f.EndPermits(ctx, resource, token)
	}
	return err
}

func (o *own[TTx]) consume(ctx context.Context, tx TTx, c fencing.Caller, p fencing.Permit, now time.Time) error {
	f, err := o.under(ctx, tx, c, fencing.AdmissionOpen(c.Says.AgentID))
	if err == nil {
		_, err = f.ConsumePermit(ctx, c.Peer, p, now)
	}
	return err
}

func (o *own[TTx]) gate(ctx context.Context, agentID string) (Gate, error) {
	var a fencing.Admission
	err := o.read(ctx, func(v store.Values) (err error) {
		a, err = o.space.Admission(ctx, v, agentID)
		return err
	})
	return fencing.NewGate(a), err
}
