package fencing

import "github.com/confirmexec/confirmexec/contract"

// Lease names one reservation of a resource, to whoever holds it: two are equal or they are not. Its token is what tells it from
// every other reservation of the resource, before and after it.
type Lease struct {
	ReservationID string `json:"reservation_id"`
	AgentID       string `json:"agent_id"` // whose it is
	Token         int64  `json:"token"`    // the fencing token: of a resource it only rises (A28)
}

// ReservationState says how a reservation stands.
type ReservationState string

// The states of a reservation. The resource is free when the state is none of them, or ReservationReleased.
const (
	ReservationActive   ReservationState = "active"   // a permit may be issued, unless one was
	ReservationFenced   ReservationState = "fenced"   // no permit any more; the resource is not free yet
	ReservationReleased ReservationState = "released" // over; the resource is free
)

// Reservation is the latest reservation of a resource, on the dispatcher's side. Its zero value has reserved nothing.
//
// It is made by Reserve, allows one permit for one execution (Issue), may be fenced (Fence), and is over when it was released
// (Release); only then the next one begins, with a higher token. Every change raises the revision by one.
type Reservation struct {
	Lease
	State       ReservationState `json:"state"`
	Revision    int64            `json:"revision"`
	ExecutionID string           `json:"execution_id"`      // that a permit was issued for; empty: none
	Evidence    Evidence         `json:"evidence,omitzero"` // of how that ended
}

// Reserve is the pure decision to reserve a free resource for an agent, with the next token. The error is ErrReserved while another
// reservation stands, also a fenced one: what it allowed may still be running.
func (r Reservation) Reserve(reservationID, agentID string) (Reservation, error) {
	if err := contract.ValidateText("/reservation_id", reservationID, contract.MaxMetaText); err != nil {
		return r, err
	}
	if err := contract.ValidateText("/agent_id", agentID, contract.MaxMetaText); err != nil {
		return r, err
	}
	switch {
	case r.State == ReservationActive || r.State == ReservationFenced:
		return r, standing(ErrReserved, r.Revision)
	case reservationID == r.ReservationID:
		return r, &contract.InvalidError{Path: "/reservation_id", Problem: "must be a new one"}
	}
	token, err := next(r.Token)
	if err != nil {
		return r, err
	}
	reserved := Reservation{Lease: Lease{reservationID, agentID, token}, State: ReservationActive, Revision: r.Revision}
	return r.moveTo(reserved)
}

// Issue is the pure decision to issue the reservation's one permit, which is p with the reservation's token. The error is
// ErrReleased also for a reservation that is not the latest, ErrReservationFenced (R72), ErrNotApproved for that of another agent,
// ErrPermitted when there is a permit (R76), and ErrMoved for another revision than the expected one (R74).
func (r Reservation) Issue(p Permit) (Reservation, Permit, error) {
	if err := r.mayIssue(p); err != nil {
		return r, Permit{}, err
	}
	issued := r
	issued.ExecutionID = p.ExecutionID
	issued, err := r.moveTo(issued)
	if err != nil {
		return r, Permit{}, err
	}
	p.Token = r.Token
	return issued, p, nil
}

func (r Reservation) mayIssue(p Permit) error {
	if err := p.validate(); err != nil {
		return err
	}
	switch {
	case p.ReservationID != r.ReservationID:
		return ErrReleased
	case p.Binding.AgentID != r.AgentID:
		return ErrNotApproved
	case r.State == ReservationFenced:
		return standing(ErrReservationFenced, r.Revision)
	case r.State != ReservationActive:
		return standing(ErrReleased, r.Revision)
	case r.ExecutionID != "":
		return standing(ErrPermitted, r.Revision)
	}
	return expect("/expected_revision", p.ExpectedRevision, r.Revision)
}

// Fence is the pure decision that no permit is issued any more. The resource stays reserved until it is released.
func (r Reservation) Fence(l Lease) (Reservation, error) {
	if err := r.held(l); err != nil {
		return r, err
	}
	if r.State == ReservationFenced {
		return r, standing(ErrReservationFenced, r.Revision)
	}
	fenced := r
	fenced.State = ReservationFenced
	return r.moveTo(fenced)
}

// Release is the pure decision to free the resource: for who holds the very reservation, and, once a permit was issued, with
// evidence of how its execution ended. The error is ErrNotHeld with the token that stands for another reservation than the latest
// (R117), ErrReleased for one that was released, and ErrNoEvidence while the execution's result is unknown (A25).
func (r Reservation) Release(l Lease, e Evidence) (Reservation, error) {
	if err := r.held(l); err != nil {
		return r, err
	}
	if err := e.settles(r); err != nil {
		return r, err
	}
	released := r
	released.State, released.Evidence = ReservationReleased, e
	return r.moveTo(released)
}

// held says whether l is the reservation that stands.
func (r Reservation) held(l Lease) error {
	switch {
	case l.Token <= 0:
		return &contract.InvalidError{Path: "/fencing_token", Problem: problemToken}
	case l != r.Lease:
		return standing(ErrNotHeld, r.Token)
	case r.State == ReservationReleased:
		return standing(ErrReleased, r.Revision)
	}
	return nil
}

// moveTo is to, with r's next revision.
func (r Reservation) moveTo(to Reservation) (Reservation, error) {
	revision, err := next(r.Revision)
	if err != nil {
		return r, err
	}
	to.Revision = revision
	return to, nil
}

func (r Reservation) sound() bool {
	named := r.ReservationID != "" && r.AgentID != "" && r.Token > 0 && r.Revision > 0
	switch r.State {
	case ReservationActive, ReservationFenced:
		return named && r.Evidence == Evidence{}
	case ReservationReleased:
		return named && r.Evidence.settles(r) == nil
	}
	return false
}
