package fencing

import (
	"context"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// ConsumePermit consumes a permit that the caller who was authenticated as peer sent, in its current session: see
// [Session.AdmitPermit] and [PermitMark.Consume]. It needs [SessionIs] and [AdmissionOpen]: what they refuse consumes nothing (R57).
// A deadline is also to be checked right before the effect (R65).
//
// Call it in the Apply of a broker's mutation whose identities are the execution and the permit, and not in its Guard: then a
// repeated request gets its receipt (R50), and another permit for the execution, or another execution for the permit, is refused
// before anything is consumed (R53, R54). That admission is open is to be held there too, with [Fence.And]: a repeated request gets
// its receipt also while it is closed.
func (f Fence) ConsumePermit(ctx context.Context, peer string, p Permit, now time.Time) (PermitMark, error) {
	if err := f.mayWrite("/resource", p.Resource, contract.MaxMetaText, sessionIs, admissionOpen); err != nil {
		return PermitMark{}, err
	}
	s, _, err := hold[Session](ctx, f.values, f.space.id(sessionName(peer)))
	if err == nil {
		err = s.AdmitPermit(p, now)
	}
	if err != nil {
		return PermitMark{}, err
	}
	_, m, err := change(ctx, f, permitMarkName(p.Resource), func(m PermitMark) (PermitMark, error) { return m.Consume(p) })
	return m, err
}

// EndPermits records, on the agent's side, that the reservation of a resource with a token was fenced or released: see
// [PermitMark.End]. It needs [SessionIs].
func (f Fence) EndPermits(ctx context.Context, resource string, token int64) (PermitMark, error) {
	if err := f.mayWrite("/resource", resource, contract.MaxMetaText, sessionIs); err != nil {
		return PermitMark{}, err
	}
	_, m, err := change(ctx, f, permitMarkName(resource), func(m PermitMark) (PermitMark, error) { return m.End(token) })
	return m, err
}

// PermitMark tells what an agent knows of a resource, without a lock: nothing may be written because of it.
func (s Space) PermitMark(ctx context.Context, values store.Values, resource string) (PermitMark, error) {
	return load[PermitMark](ctx, values, s.id(permitMarkName(resource)))
}

func permitMarkName(resource string) string { return "permit_mark/" + resource }
