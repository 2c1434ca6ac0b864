package grpcerr

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
)

// CallError is the error of every call that failed: what is known of it, and what its caller does next. The text is safe to log
// and to show; what a proxy or a library wrote into the status is only reached through GRPCStatus.
//
// errors.As finds it, status.FromError finds the status that the call ended with, and [contract.FailureOf] finds a failure whose
// effect is the decision's, so that an executor of the broker can return the error as it is. A read has no effect of its own, and
// proves nothing about what its caller did before it: the failure found there has an unknown effect. A handler that returns the
// error tells its own caller of an unknown effect, whatever this call's was ([Codec.ToStatus]).
type CallError struct {
	// Method is the full name.
	Method string
	// Delivery is what is known of the call's way. A call that was refused here has that of the call before it.
	Delivery contract.Delivery
	// Decision is what comes next, from [contract.Decide]. Where an earlier attempt at the operation may have been executed, it
	// stays unknown whatever a later one was told.
	Decision contract.Decision
	// Failure is the receiver's own; nil when no answer of the receiver arrived.
	Failure *contract.Failure
	// Attempts are those that gRPC began with, Transparent those among them that it repeated by itself.
	Attempts, Transparent int

	readOnly bool
	status   *status.Status
	why      *contract.Failure // this library's own reason, in the place of a failure that the receiver did not send
}

// The reasons of this library's own failures.
const (
	ReasonSetup          contract.Reason = "pramaan.agent_operation.grpc_setup"
	ReasonNotAnswered    contract.Reason = "pramaan.agent_operation.not_answered"
	ReasonNotResent      contract.Reason = "pramaan.agent_operation.not_resent"
	ReasonContentChanged contract.Reason = "pramaan.agent_operation.content_changed"
)

// What a failed call is, where the receiver did not say it. Their effect is told by the decision of the [CallError] around them.
var (
	// ErrSetup says that the interceptors are there without their stats handler, or that another interceptor between them hands on
	// a new context: use [DialOptions].
	ErrSetup = &contract.Failure{Code: contract.FailedPrecondition, Reason: ReasonSetup, Effect: contract.EffectUnknown,
		Message: "the interceptor's stats handler does not see its calls, so nothing can be said of them; use grpcerr.DialOptions"}
	// ErrNotAnswered is a call that has certainly had no effect, and no answer of the receiver's.
	ErrNotAnswered = &contract.Failure{Code: contract.Unavailable, Reason: ReasonNotAnswered, Effect: contract.EffectNone,
		Message: "there was no answer; nothing was done"}
	// ErrNotResent is the refusal to send an operation a second time: the decision about the call before it does not allow that, or
	// asks for an action first; see [WithActionDone]. Nothing was sent.
	ErrNotResent = &contract.Failure{Code: contract.FailedPrecondition, Reason: ReasonNotResent, Effect: contract.EffectUnknown,
		Message: "the operation was sent before, and is not sent again; act on the decision about it"}
	// ErrContentChanged is the refusal to send other content under the id of an operation that was sent before. Its chain has
	// ErrNotResent too.
	ErrContentChanged = &contract.Failure{Code: contract.Aborted, Reason: ReasonContentChanged, Effect: contract.EffectUnknown,
		Message: "the operation was sent before with other content; other content is a new operation"}
)

// Error tells the method, the status code, the failure or why there is none, and the decision.
func (e *CallError) Error() string {
	if e == nil {
		return "call error without content"
	}
	return fmt.Sprintf("%s: %s: %s; delivery %s; next %s", e.Method, e.status.Code(), e.failure().Error(), e.Delivery, e.Decision.Action)
}

// GRPCStatus returns the status that the call ended with, never an OK one; nil for a nil pointer.
func (e *CallError) GRPCStatus() *status.Status {
	if e == nil {
		return nil
	}
	return e.status
}

// Relayed is true: who returns this error tells of another call than the one that he was asked for. See [contract.FailureToTell].
func (*CallError) Relayed() bool { return true }

// Unwrap returns the failure with the decision's effect; a nil pointer has none.
func (e *CallError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.failure()
}

// failure is the receiver's failure or this library's own, with the effect that is known of the whole operation.
func (e *CallError) failure() *contract.Failure {
	f := contract.ErrOutcomeUnknown
	switch {
	case e.why != nil:
		f = e.why
	case e.Failure != nil:
		f = e.Failure
	case e.Decision.Effect == contract.EffectNone:
		f = ErrNotAnswered
	}
	known := *f
	known.Effect = e.Decision.Effect
	if e.readOnly {
		known.Effect = contract.EffectUnknown
	}
	return &known
}

// statusFor is the status of an error that a call ended with; nil is an error that only this library sees. A status of one's own
// has no details: they would be taken for the receiver's.
func statusFor(err error, f *contract.Failure) *status.Status {
	if st := status.Convert(err); st.Code() != codes.OK {
		return st
	}
	rule, _ := f.Code.Rule()
	return status.New(codes.Code(rule.GRPC), f.Message)
}
