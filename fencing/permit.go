package fencing

import "github.com/confirmexec/confirmexec/contract"

// PermitRequest is what an agent asks a permit for.
type PermitRequest struct {
	Resource         string `json:"resource"`
	ReservationID    string `json:"reservation_id"`
	ExecutionID      string `json:"execution_id"`
	ExpectedRevision int64  `json:"expected_revision"` // of the reservation
	Deadline         int64  `json:"deadline"`          // of the permit, exclusive; in milliseconds since 1970 in UTC
}

// Permit allows one execution once, by one agent in one session. An execution has one permit for ever: whoever does not know what
// became of it asks for the execution, and never for another permit (R76).
type Permit struct {
	ID string `json:"id"`
	PermitRequest
	Token   int64   `json:"token"` // the fencing token of the reservation
	Epoch   Epoch   `json:"epoch"` // of the dispatcher
	Binding Binding `json:"binding"`
}

// validate checks what is asked for. The error is a *contract.InvalidError.
func (q PermitRequest) validate() error {
	for _, text := range []struct{ path, value string }{
		{"/resource", q.Resource}, {"/reservation_id", q.ReservationID}, {"/execution_id", q.ExecutionID},
	} {
		if err := contract.ValidateText(text.path, text.value, contract.MaxMetaText); err != nil {
			return err
		}
	}
	switch {
	case q.ExpectedRevision <= 0:
		return expect("/expected_revision", q.ExpectedRevision, 0)
	case q.Deadline <= 0:
		return &contract.InvalidError{Path: "/deadline", Problem: "must be the exclusive end of the permit"}
	}
	return nil
}

func (p Permit) sound() bool {
	return p.validate() == nil && p.ID != "" && p.Token > 0 && p.Epoch != "" && p.Binding.Generation > 0
}
