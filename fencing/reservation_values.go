package fencing

import (
	"context"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Reserve reserves a resource for an agent: see [Reservation.Reserve]. Like the others it needs [EpochIs]: reservations are the office's.
func (f Fence) Reserve(ctx context.Context, resource, reservationID, agentID string) (Reservation, error) {
	return f.reservation(ctx, resource, func(r Reservation) (Reservation, error) { return r.Reserve(reservationID, agentID) })
}

// FenceReservation keeps permits from being issued for a reservation that is held: see [Reservation.Fence].
func (f Fence) FenceReservation(ctx context.Context, resource string, l Lease) (Reservation, error) {
	return f.reservation(ctx, resource, func(r Reservation) (Reservation, error) { return r.Fence(l) })
}

// ReleaseReservation frees the resource of a reservation that is held: see [Reservation.Release]. The agent in l must be the one that
// was authenticated, or that of the reservation that a reconciler read.
func (f Fence) ReleaseReservation(ctx context.Context, resource string, l Lease, e Evidence) (Reservation, error) {
	return f.reservation(ctx, resource, func(r Reservation) (Reservation, error) { return r.Release(l, e) })
}

func (f Fence) reservation(ctx context.Context, resource string, decide func(Reservation) (Reservation, error)) (Reservation, error) {
	if err := f.mayWrite("/resource", resource, contract.MaxMetaText, epochIs); err != nil {
		return Reservation{}, err
	}
	_, r, err := change(ctx, f, reservationName(resource), decide)
	return r, err
}

// Reservation tells the latest reservation of a resource, without a lock: nothing may be written because of it.
func (s Space) Reservation(ctx context.Context, values store.Values, resource string) (Reservation, error) {
	return load[Reservation](ctx, values, s.id(reservationName(resource)))
}

func reservationName(resource string) string { return "reservation/" + resource }
