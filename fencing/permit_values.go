package fencing

import (
	"context"
	"crypto/rand"

	"github.com/confirmexec/confirmexec/store"
)

// IssuePermit issues the permit of a reservation to the agent that was authenticated as peer, in its current session, whatever its
// request says of that. It needs [SessionIs] and [EpochIs]: a dispatcher that is not the active one issues nothing. See
// [Reservation.Issue] for the refusals; ErrPermitted is also that of an execution that has a permit of another reservation.
//
// It returns the reservation after it: its revision is the receipt's. A repeated request must not come here: it is answered with
// its receipt and [Space.Permit] (R71). The store's error, such as store.ErrRetryTx when two ask for the same execution at once,
// rolls the transaction back.
func (f Fence) IssuePermit(ctx context.Context, peer string, q PermitRequest) (Permit, Reservation, error) {
	if err := f.mayWrite("/peer", peer, maxPeer, sessionIs, epochIs); err != nil {
		return Permit{}, Reservation{}, err
	}
	s, _, err := hold[Session](ctx, f.values, f.space.id(sessionName(peer)))
	if err == nil && s.BootID == "" {
		err = ErrNoSession
	}
	if err == nil {
		err = q.validate()
	}
	if err != nil {
		return Permit{}, Reservation{}, err
	}
	return f.issue(ctx, Permit{ID: rand.Text(), PermitRequest: q, Epoch: s.Epoch, Binding: s.Binding})
}

// issue looks for a permit of the execution first, so that it need not be refused after something was written.
func (f Fence) issue(ctx context.Context, p Permit) (Permit, Reservation, error) {
	id := f.space.id(permitName(p.ExecutionID))
	other, err := load[Permit](ctx, f.values, id)
	if err == nil && other.ID != "" {
		err = ErrPermitted
	}
	if err != nil {
		return Permit{}, Reservation{}, err
	}
	var issued Permit
	_, r, err := change(ctx, f, reservationName(p.Resource), func(r Reservation) (after Reservation, err error) {
		after, issued, err = r.Issue(p)
		return after, err
	})
	if err == nil {
		_, err = swap(ctx, f.values, id, 0, issued)
	}
	switch {
	case isRevision(err):
		return Permit{}, Reservation{}, &store.Error{Op: "fencing: issue permit", Kind: store.ErrRetryTx, Cause: err}
	case err != nil:
		return Permit{}, Reservation{}, err
	}
	return issued, r, nil
}

// Permit tells the permit of an execution, without a lock, and whether it is valid: the permit of a reservation that was fenced or
// released is void (R73). The zero Permit is none.
func (s Space) Permit(ctx context.Context, values store.Values, executionID string) (p Permit, valid bool, err error) {
	p, err = load[Permit](ctx, values, s.id(permitName(executionID)))
	if err != nil || p.ID == "" {
		return p, false, err
	}
	r, err := s.Reservation(ctx, values, p.Resource)
	return p, err == nil && r.State == ReservationActive && r.ReservationID == p.ReservationID && r.Token == p.Token, err
}

func permitName(executionID string) string { return "permit/" + executionID }
