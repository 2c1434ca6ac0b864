package fencing

import "github.com/confirmexec/confirmexec/contract"

// The reasons of refusals.
const (
	ReasonEpochFenced       contract.Reason = "pramaan.agent_fencing.epoch_fenced"
	ReasonSessionFenced     contract.Reason = "pramaan.agent_fencing.session_fenced"
	ReasonNoSession         contract.Reason = "pramaan.agent_fencing.no_session"
	ReasonNotApproved       contract.Reason = "pramaan.agent_fencing.not_approved"
	ReasonTokenStale        contract.Reason = "pramaan.agent_fencing.token_stale" //nolint:gosec // a name, not a credential
	ReasonMoved             contract.Reason = "pramaan.agent_fencing.revision_moved"
	ReasonClosed            contract.Reason = "pramaan.agent_fencing.admission_closed"
	ReasonNotDrained        contract.Reason = "pramaan.agent_fencing.barrier_not_reached"
	ReasonTerminal          contract.Reason = "pramaan.agent_fencing.terminal_state"
	ReasonExpired           contract.Reason = "pramaan.agent_fencing.authorization_expired"
	ReasonUnauthorized      contract.Reason = "pramaan.agent_fencing.not_authorized"
	ReasonUnfenced          contract.Reason = "pramaan.agent_fencing.unfenced"
	ReasonPermitFenced      contract.Reason = "pramaan.agent_fencing.permit_fenced"
	ReasonReserved          contract.Reason = "pramaan.agent_fencing.resource_reserved"
	ReasonReleased          contract.Reason = "pramaan.agent_fencing.reservation_released"
	ReasonReservationFenced contract.Reason = "pramaan.agent_fencing.reservation_fenced"
	ReasonNotHeld           contract.Reason = "pramaan.agent_fencing.reservation_not_held"
	ReasonNoEvidence        contract.Reason = "pramaan.agent_fencing.execution_unknown"
	ReasonPermitted         contract.Reason = "pramaan.agent_fencing.permit_issued"
	ReasonVoid              contract.Reason = "pramaan.agent_fencing.permit_void"
	ReasonConsumed          contract.Reason = "pramaan.agent_fencing.permit_consumed"
	ReasonExhausted         contract.Reason = "pramaan.agent_fencing.exhausted"
	ReasonUnreadable        contract.Reason = "pramaan.agent_fencing.unreadable"

	ReasonNotStarted     contract.Reason = "pramaan.agent_fencing.not_started"
	ReasonNotPaused      contract.Reason = "pramaan.agent_fencing.not_paused"
	ReasonAlreadyStopped contract.Reason = "pramaan.agent_fencing.already_stopped"
	ReasonDrainTimeout   contract.Reason = "pramaan.agent_fencing.drain_timeout"
)

// The refusals, for errors.Is. None of them did anything. What tells a number carries it in Current.
var (
	// ErrEpochFenced is the refusal of another dispatcher epoch than the one that stands (R112).
	ErrEpochFenced = refuse(contract.Aborted, ReasonEpochFenced,
		"the epoch is not the active one; nothing was done; read the active one again")
	// ErrSessionFenced is the refusal of another boot or session generation than the current one, be it lower or higher (R116, R122).
	ErrSessionFenced = refuse(contract.Unauthenticated, ReasonSessionFenced,
		"the session is not the current one; nothing was done; activate again, and do not replay business work")
	// ErrNoSession is the refusal of a caller that has no active session (R66).
	ErrNoSession = refuse(contract.Unauthenticated, ReasonNoSession, "there is no active session; nothing was done; activate first")
	// ErrNotApproved is the refusal of an identity that nobody approved, or that says to be another (R40, R115).
	ErrNotApproved = refuse(contract.PermissionDenied, ReasonNotApproved, "the identity is not approved for this; nothing was done")
	// ErrTokenStale is the refusal of a fencing token below the highest that was seen (R56).
	ErrTokenStale = refuse(contract.Aborted, ReasonTokenStale, "a newer fencing token has been seen; nothing was done")
	// ErrMoved is the refusal of an expected revision or generation that does not stand (R45, R74, R83).
	ErrMoved = refuse(contract.Aborted, ReasonMoved, "the revision has moved; nothing was done; read it again and decide anew")
	// ErrClosed is the refusal of new work while admission is closed (R57).
	ErrClosed = refuse(contract.FailedPrecondition, ReasonClosed, "admission is closed; nothing was done")
	// ErrNotDrained is the refusal of what needs a barrier that is not reached (R119).
	ErrNotDrained = refuse(contract.FailedPrecondition, ReasonNotDrained, "the barrier is not reached yet; nothing was done; drain first")
	// ErrTerminal is the refusal of a change of what is over for ever (R79, R92).
	ErrTerminal = refuse(contract.FailedPrecondition, ReasonTerminal, "it has ended and stays so; nothing was done")
	// ErrExpired is the refusal of an authorization whose exclusive deadline is reached. It is known that nothing happened (R64).
	ErrExpired = refuse(contract.PermissionDenied, ReasonExpired, "the authorization has expired; nothing was done; a new one is needed")
	// ErrUnauthorized is the refusal of what needs a new authorization (R82).
	ErrUnauthorized = refuse(contract.PermissionDenied, ReasonUnauthorized, "this needs a new authorization; nothing was done")
	// ErrUnfenced is the refusal of a write through the zero Fence, or through one without the checks that it needs: see [Fence].
	ErrUnfenced = refuse(contract.FailedPrecondition, ReasonUnfenced,
		"nothing holds the fence; nothing was done; write through what Space.Hold returned")
	// ErrPermitFenced is the refusal of a permit of another boot or session generation than the current one (R51).
	ErrPermitFenced = refuse(contract.Aborted, ReasonPermitFenced, "the permit is of another session; nothing was done; query its execution")
	// ErrReserved is the refusal to reserve what somebody has reserved, until it is released.
	ErrReserved = refuse(contract.ResourceExhausted, ReasonReserved, "the resource is reserved; nothing was done; wait for its release")
	// ErrReleased is the refusal of what needs a reservation that is released, or that never was (R72).
	ErrReleased = refuse(contract.FailedPrecondition, ReasonReleased, "there is no such reservation any more; nothing was done")
	// ErrReservationFenced is the refusal of what needs a reservation that is not fenced (R72).
	ErrReservationFenced = refuse(contract.FailedPrecondition, ReasonReservationFenced, "the reservation is fenced; nothing was done")
	// ErrNotHeld is the refusal of a reservation that is not the one that stands, with the token of that (R117).
	ErrNotHeld = refuse(contract.Aborted, ReasonNotHeld, "another reservation stands, or none; nothing was done")
	// ErrNoEvidence is the refusal to release a reservation whose execution may still be running (A25).
	ErrNoEvidence = refuse(contract.FailedPrecondition, ReasonNoEvidence,
		"it is not known how the execution ended; nothing was released; query it, and release with the evidence")
	// ErrPermitted is the refusal of a second permit (R76).
	ErrPermitted = refuse(contract.AlreadyExists, ReasonPermitted, "there is a permit; no other was issued; read it, and query its execution")
	// ErrVoid is the refusal of a permit whose reservation is over (R73).
	ErrVoid = refuse(contract.FailedPrecondition, ReasonVoid, "the permit is void; nothing was done; query its execution")
	// ErrConsumed is the refusal of a permit that was consumed.
	ErrConsumed = refuse(contract.FailedPrecondition, ReasonConsumed, "the permit was consumed; nothing was done again; query its execution")
	// ErrExhausted is the refusal to count on beyond the largest number: it never wraps around.
	ErrExhausted = refuse(contract.ResourceExhausted, ReasonExhausted, "there is no next number; nothing was done")
	// ErrUnreadable is the refusal to guess about a stored state that this version cannot read.
	ErrUnreadable = refuse(contract.Unavailable, ReasonUnreadable,
		"what is stored cannot be read by this version; nothing was done; read it with the version that wrote it")
	// ErrNotStarted is the refusal of a change of what nobody started: an empty store is not a state to go on from.
	ErrNotStarted = refuse(contract.NotFound, ReasonNotStarted, "nothing was started under this name; nothing was done")
	// ErrNotPaused is the refusal to resume what is not paused.
	ErrNotPaused = refuse(contract.FailedPrecondition, ReasonNotPaused, "it is not paused; nothing was done; read its state again")
	// ErrAlreadyStopped is the refusal of another operation's stop of what is stopped (A23).
	ErrAlreadyStopped = refuse(contract.AlreadyExists, ReasonAlreadyStopped,
		"it was stopped before; nothing was done; read the operation that did")
)

// ErrDrainTimeout is no refusal: admission is closed and stays so, but calls were still active when the wait for them ended. What
// was asked for is not reached, and may be by now: deliver it again (R90).
var ErrDrainTimeout = &contract.Failure{Code: contract.DeadlineExceeded, Reason: ReasonDrainTimeout, Effect: contract.EffectUnknown,
	Message: "calls were still active when the time was up; admission stays closed; deliver it again"}

func refuse(code contract.FailureCode, reason contract.Reason, message string) *contract.Failure {
	return &contract.Failure{Code: code, Reason: reason, Effect: contract.EffectNone, Message: message}
}

// standing is f with the number that stands.
func standing(f *contract.Failure, current int64) error {
	told := *f
	told.Current = current
	return &told
}
