package fencing

import (
	"time"

	"github.com/confirmexec/confirmexec/contract"
)

// PermitMark is what an agent knows of a resource: the highest fencing token that it has seen, of which permit, and what has become
// of that. Since tokens only rise and each is of one permit, this one state tells of every permit of the resource that there ever
// was whether it may still be consumed. Its zero value has seen none.
type PermitMark struct {
	Mark               // the holder is the permit's id; empty when only its end was seen
	ExecutionID string `json:"execution_id"` // that the permit was consumed for; empty: not consumed
	Void        bool   `json:"void"`         // the reservation with the token has been fenced or released
}

// AdmitPermit is the pure decision whether a permit is for this session, and not over: all of the binding, and the epoch. A permit of
// another agent or cell is denied; of another boot, generation or epoch it is ABORTED, since the session itself is in order (R51,
// A5); at its exclusive deadline it is ErrExpired (R64).
func (s Session) AdmitPermit(p Permit, now time.Time) error {
	if err := s.admit(p.Binding, p.Epoch, ErrPermitFenced); err != nil {
		return err
	}
	return Before(now, time.UnixMilli(p.Deadline))
}

// Consume is the pure decision to consume a permit, which is possible once. The error is ErrTokenStale for a lower token than the
// highest one seen, and for the same one of another permit (R56); ErrVoid when the reservation is over (R73); ErrConsumed for a
// permit that was consumed, or contract.ErrSecondOperation if that was for another execution (R54).
func (m PermitMark) Consume(p Permit) (PermitMark, error) {
	if err := contract.ValidateText("/permit_id", p.ID, contract.MaxMetaText); err != nil {
		return m, err
	}
	if err := contract.ValidateText("/execution_id", p.ExecutionID, contract.MaxMetaText); err != nil {
		return m, err
	}
	if m.Void && p.Token == m.Token {
		return m, standing(ErrVoid, m.Token)
	}
	mark, err := m.Show(p.Token, p.ID)
	switch {
	case err != nil:
		return m, err
	case mark != m.Mark:
		return PermitMark{Mark: mark, ExecutionID: p.ExecutionID}, nil
	case m.ExecutionID != p.ExecutionID:
		return m, contract.ErrSecondOperation
	}
	return m, standing(ErrConsumed, m.Token)
}

// End is the pure decision about the news that the reservation with a token was fenced or released: neither its permit nor an
// earlier one can be consumed from then on. News that came late change nothing.
func (m PermitMark) End(token int64) (PermitMark, error) {
	switch {
	case token <= 0:
		return m, &contract.InvalidError{Path: "/fencing_token", Problem: problemToken}
	case token > m.Token:
		return PermitMark{Mark: Mark{Token: token}, Void: true}, nil
	case token == m.Token:
		m.Void = true
	}
	return m, nil
}

func (m PermitMark) sound() bool {
	return m.Token > 0 && (m.Holder != "" || m.Void) && (m.Holder == "") == (m.ExecutionID == "")
}
