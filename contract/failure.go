package contract

import (
	"errors"
	"fmt"
)

// FailureCode is the closed vocabulary of failures that the two source contracts share. Its values are stable: they are
// stored, sent and compared.
type FailureCode string

// The ten failure codes. There is no code for success.
const (
	InvalidArgument    FailureCode = "INVALID_ARGUMENT"
	Unauthenticated    FailureCode = "UNAUTHENTICATED"
	PermissionDenied   FailureCode = "PERMISSION_DENIED"
	FailedPrecondition FailureCode = "FAILED_PRECONDITION"
	Aborted            FailureCode = "ABORTED"
	ResourceExhausted  FailureCode = "RESOURCE_EXHAUSTED"
	Unavailable        FailureCode = "UNAVAILABLE"
	DeadlineExceeded   FailureCode = "DEADLINE_EXCEEDED"
	NotFound           FailureCode = "NOT_FOUND"
	AlreadyExists      FailureCode = "ALREADY_EXISTS"
)

// Effect says what a failure tells about the effect that was asked for.
type Effect uint8

const (
	// EffectByCode is what the code's rule says. The zero value.
	EffectByCode Effect = iota
	// EffectNone says that nothing happened, and that this is known.
	EffectNone
	// EffectUnknown says that it may have happened; only reading tells.
	EffectUnknown
)

// String tells the effect's name: "by_code", "none" or "unknown".
func (e Effect) String() string {
	switch e {
	case EffectNone:
		return "none"
	case EffectUnknown:
		return "unknown"
	case EffectByCode:
	}
	return "by_code"
}

// Action is what the caller of a mutation does next. No action of the retry table sends the same request again unchanged (R16);
// [Decide] adds one for what was never sent, and one for reads.
type Action string

// The actions of the retry table.
const (
	FixRequest       Action = "fix_request"        // never send it unchanged
	Reauthenticate   Action = "reauthenticate"     // re-establish the session; do not replay business work
	StopAndAuthorize Action = "stop_and_authorize" // stop; a new authorization is a new operation
	RefreshState     Action = "refresh_state"      // refresh, then the original operation id only if allowed
	RereadRevision   Action = "reread_revision"    // nothing may be assumed applied
	AwaitRelease     Action = "await_release"      // wait for a durable release, not for a timer
	Reconcile        Action = "reconcile"          // reconnect and query the original operation first
	TreatAsUnknown   Action = "treat_as_unknown"   // unless a durable receipt is found
	DoNotSubstitute  Action = "do_not_substitute"  // never create another execution instead
	ReadExisting     Action = "read_existing"      // read the existing operation; never create a second
	SendOriginal     Action = "send_original"      // it was never sent: the original operation, key and bytes, for the first time
	RetryRead        Action = "retry_read"         // a read: the same request again, with its bytes and trace identity
)

// Rule is one row of the retry table: data for callers of every kind, and the only place where the codes are listed.
type Rule struct {
	Code   FailureCode
	GRPC   uint32 // the canonical gRPC status code of the same name
	Action Action
	Effect Effect // what the code alone says about the effect: EffectNone or EffectUnknown
}

// rules holds the retry table of the Agent contract in its order (R1, R16).
var rules = [...]Rule{
	{InvalidArgument, 3, FixRequest, EffectNone},
	{Unauthenticated, 16, Reauthenticate, EffectNone},
	{PermissionDenied, 7, StopAndAuthorize, EffectNone},
	{FailedPrecondition, 9, RefreshState, EffectNone},
	{Aborted, 10, RereadRevision, EffectUnknown},
	{ResourceExhausted, 8, AwaitRelease, EffectNone},
	{Unavailable, 14, Reconcile, EffectUnknown},
	{DeadlineExceeded, 4, TreatAsUnknown, EffectUnknown},
	{NotFound, 5, DoNotSubstitute, EffectNone},
	{AlreadyExists, 6, ReadExisting, EffectUnknown},
}

// RetryTable returns the ten rules in the order of the contract. The slice is the caller's.
func RetryTable() []Rule { return append([]Rule(nil), rules[:]...) }

// Rule returns the code's row of the retry table; false for a value that is not a code.
func (c FailureCode) Rule() (Rule, bool) {
	for _, r := range rules {
		if r.Code == c {
			return r, true
		}
	}
	return Rule{}, false
}

// FailureCodeOfGRPC returns the code for a gRPC status code; false for the seven that have none.
func FailureCodeOfGRPC(code uint32) (FailureCode, bool) {
	for _, r := range rules {
		if r.GRPC == code {
			return r.Code, true
		}
	}
	return "", false
}

// Reason is the stable sub-reason of a failure. A service may have its own.
type Reason string

// Failure is one refusal in the shared vocabulary: an error whose text is safe to log and to show. The text never holds
// payloads, keys or tenants (S22); a cause may, and is only reached through Unwrap.
//
// An executor returns one to say what it knows of its effect: a code whose effect is none makes the item failed, every
// other makes it ambiguous. Two failures match under errors.Is when they have the same Reason. A nil *Failure in an
// error, as a careless return makes it, proves nothing: it has no code and no known effect.
type Failure struct {
	Code    FailureCode
	Reason  Reason
	Effect  Effect // EffectByCode unless more is known
	Message string // what was wrong and what to do
	Current int64  // the revision or generation that stands now, for the caller to read again; 0: not told
	Cause   error  // may hold sensitive text; not part of Error
}

// Error tells the code, the reason, the message and the current revision, each if it is there.
func (f *Failure) Error() string {
	if f == nil {
		return "no failure" // as it is printed of a receipt that needs none
	}
	text := string(f.Code)
	if f.Reason != "" {
		text += ": " + string(f.Reason)
	}
	text += ": " + f.Message
	if f.Current != 0 {
		text += fmt.Sprintf(" (current revision %d)", f.Current)
	}
	return text
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error {
	if f == nil {
		return nil
	}
	return f.Cause
}

// Is says whether target is a Failure with the same reason, or, where neither has one, the same code.
func (f *Failure) Is(target error) bool {
	t, ok := target.(*Failure)
	if !ok || t == nil || f == nil {
		return false
	}
	return f.Reason == t.Reason && (f.Reason != "" || f.Code == t.Code)
}

// KnownNoEffect says whether f is proof that nothing happened.
func (f *Failure) KnownNoEffect() bool {
	if f == nil {
		return false
	}
	if f.Effect != EffectByCode {
		return f.Effect == EffectNone
	}
	r, ok := f.Code.Rule()
	return ok && r.Effect == EffectNone
}

// FailureOf returns the first failure in err's chain; false when there is none. It is total: nil has none. Whether all of err
// is proof that nothing happened, [KnownNoEffect] says: the failure may be joined with errors that prove nothing.
func FailureOf(err error) (*Failure, bool) {
	f, ok := errors.AsType[*Failure](err)
	return f, ok && f != nil
}

// CodeOf returns the code of the first failure in err's chain; false when there is none. It is total: nil has none.
func CodeOf(err error) (FailureCode, bool) {
	f, ok := FailureOf(err)
	if !ok {
		return "", false
	}
	return f.Code, true
}
