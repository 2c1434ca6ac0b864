package contract

// ResultCode is the closed set of what a receipt says (R23).
type ResultCode string

// The seven result codes. A transport success is none of them.
const (
	ResultAccepted   ResultCode = "ACCEPTED"    // durably recorded; not applied yet
	ResultApplied    ResultCode = "APPLIED"     // the state transition and its evidence are committed
	ResultUnknown    ResultCode = "UNKNOWN"     // recorded before the effect; how that ended is not known
	ResultConflict   ResultCode = "CONFLICT"    // it disagreed with what stands; not applied
	ResultRefused    ResultCode = "REFUSED"     // decided against, durably
	ResultStopped    ResultCode = "STOPPED"     // stopped before it was applied
	ResultNotApplied ResultCode = "NOT_APPLIED" // not applied, on evidence
)

// ResultCodes returns the seven codes in the order of the contract. The slice is the caller's.
func ResultCodes() []ResultCode {
	return []ResultCode{
		ResultAccepted, ResultApplied, ResultUnknown, ResultConflict, ResultRefused, ResultStopped, ResultNotApplied,
	}
}

// Valid says whether c is one of the seven codes.
func (c ResultCode) Valid() bool {
	switch c {
	case ResultAccepted, ResultApplied, ResultUnknown, ResultConflict, ResultRefused, ResultStopped, ResultNotApplied:
		return true
	}
	return false
}

// Terminal says whether a receipt with this code never changes. Only ACCEPTED and UNKNOWN may advance, with evidence.
func (c ResultCode) Terminal() bool { return c.Valid() && c != ResultAccepted && c != ResultUnknown }

// MarshalText refuses everything but the seven codes.
func (c ResultCode) MarshalText() ([]byte, error) {
	if !c.Valid() {
		return nil, invalid("", problemResult)
	}
	return []byte(c), nil
}

// UnmarshalText refuses everything but the seven codes: another is an error, never a default. The error is an *[InvalidError].
func (c *ResultCode) UnmarshalText(text []byte) error {
	code := ResultCode(text)
	if !code.Valid() {
		return invalid("", problemResult)
	}
	*c = code
	return nil
}

const problemResult = "must be one of the seven result codes"

// Barrier is the evidence of a barrier that was reached: which one, and that nothing was left running behind it (R20, A9).
type Barrier struct {
	ID          string `json:"id"`
	ActiveCalls int64  `json:"active_calls"`
	Epoch       string `json:"epoch,omitempty"`
}

// Receipt is what a receiver recorded of one mutation. It is the application's answer, which a transport success is not. A
// terminal one never changes; the zero value is no receipt.
type Receipt struct {
	Result      ResultCode
	Method      string
	OperationID string
	Digest      Digest // of the request's content

	Before, After int64 // the revision or generation before and after; 0: none
	Barrier       *Barrier

	Ref    string // what the effect made, in the target's terms; may be empty
	Detail string // evidence for a person; may be empty
	By     string // who stands for a verdict that came later; empty for the receiver itself

	// RecordedAt is when the receiver recorded it, in milliseconds since 1970 in UTC. It informs; nothing is decided by it.
	RecordedAt int64

	Failure *Failure // why it is not applied; nil if that needs no reason

	// Replayed says that the receipt was recorded for an earlier delivery of the same request. It is not recorded itself.
	Replayed bool
}

// Reasons of receipts.
const (
	ReasonOutcomeUnknown  Reason = "pramaan.agent_operation.outcome_unknown"
	ReasonNotApplied      Reason = "pramaan.agent_operation.not_applied"
	ReasonNotAdvanced     Reason = "pramaan.agent_operation.not_advanced"
	ReasonSealed          Reason = "pramaan.agent_operation.sealed"
	ReasonSecondOperation Reason = "pramaan.agent_operation.second_operation"
	ReasonPruned          Reason = "pramaan.agent_operation.pruned"
)

// The failures of receipts and of the mutations that they are for; see also the broker's refusals.
var (
	// ErrOutcomeUnknown is the error of a receipt that says ACCEPTED or UNKNOWN, and of a reply without one.
	ErrOutcomeUnknown = &Failure{Code: Unavailable, Reason: ReasonOutcomeUnknown, Effect: EffectUnknown,
		Message: "the outcome is not known yet; query the original operation; do not start another"}
	// ErrNotApplied is the error of a terminal receipt that says anything but APPLIED, and gives no failure of its own.
	ErrNotApplied = &Failure{Code: Aborted, Reason: ReasonNotApplied, Effect: EffectNone,
		Message: "the operation was not applied, and will not be"}
	// ErrNotAdvanced is the refusal of evidence that may not change a receipt.
	ErrNotAdvanced = &Failure{Code: FailedPrecondition, Reason: ReasonNotAdvanced,
		Message: "the receipt may not change in this way; read it again; a terminal receipt never changes, and UNKNOWN only with evidence"}
	// ErrSealed is the refusal of an operation that somebody sealed while it was missing, so that it can never run.
	ErrSealed = &Failure{Code: Aborted, Reason: ReasonSealed, Effect: EffectNone,
		Message: "the operation was sealed before it arrived; it was not executed and never will be"}
	// ErrSecondOperation is the refusal of an operation whose execution, permit or other identity another operation has. It is also
	// the answer to a second operation about an execution that was decided on, refused or not: of the contract's two sentences, that a
	// second attempt returns the first decision (R58) and that a second operation is a conflict (R62), the first one is about the
	// same operation again. Querying by the identity tells the first decision, which stays for ever (A26).
	ErrSecondOperation = &Failure{Code: Aborted, Reason: ReasonSecondOperation, Effect: EffectNone,
		Message: "another operation has this identity; nothing was done; query that one, and do not start another"}
	// ErrPruned is the answer about an operation whose receipt is no longer kept.
	ErrPruned = &Failure{Code: AlreadyExists, Reason: ReasonPruned, Effect: EffectUnknown,
		Message: "the operation was settled and its receipt is no longer kept; it will not run again"}
)

// Applied says whether the effect is there, with its evidence: whether the result is APPLIED and the receipt can stand.
func (r Receipt) Applied() bool { return r.Result == ResultApplied && r.Validate() == nil }

// Err is for callers that only look at errors: nil for what is [Receipt.Applied] alone. The zero Receipt, a result that is not
// terminal and an APPLIED that cannot stand are [ErrOutcomeUnknown]: a success of the transport is not one of the operation
// (R20, R21, R22). Every other result is the receipt's failure, or [ErrNotApplied].
func (r Receipt) Err() error {
	switch {
	case r.Applied():
		return nil
	case r.Result == ResultApplied, !r.Result.Terminal():
		return ErrOutcomeUnknown
	case r.Failure != nil:
		return r.Failure
	}
	return ErrNotApplied
}

// Validate checks that a receipt can stand: a known result; APPLIED only with evidence (a moved revision, a barrier with nothing
// running, or a ref), without a failure and without a revision that went back; no negative revision; a failure of one of the
// ten codes (R2, R20). The error is an *[InvalidError].
func (r Receipt) Validate() error {
	switch {
	case !r.Result.Valid():
		return invalid("/result", problemResult)
	case r.Before < 0:
		return invalid("/before", problemRevision)
	case r.After < 0:
		return invalid("/after", problemRevision)
	case r.Barrier != nil && (r.Barrier.ID == "" || r.Barrier.ActiveCalls < 0):
		return invalid("/barrier", "must have an id and a count")
	case r.Result == ResultApplied:
		return r.validateApplied()
	}
	return r.validateFailure()
}

const problemRevision = "must not be negative"

func (r Receipt) validateApplied() error {
	switch {
	case r.Failure != nil:
		return invalid("/failure", "must not be there: the result is APPLIED")
	case r.After != 0 && r.After < r.Before:
		return invalid("/after", "must not be below before: the result is APPLIED")
	case r.Barrier != nil && r.Barrier.ActiveCalls != 0:
		return invalid("/barrier/active_calls", "must be 0: the result is APPLIED")
	case r.Barrier == nil && r.After <= r.Before && r.Ref == "":
		return invalid("/result", "is APPLIED without evidence: a moved revision, a reached barrier or a ref")
	}
	return nil
}

func (r Receipt) validateFailure() error {
	if r.Failure == nil {
		return nil
	}
	if _, ok := r.Failure.Code.Rule(); !ok {
		return invalid("/failure/code", problemCode)
	}
	return nil
}

const problemCode = "must be one of the ten failure codes"

// Advance returns the receipt that takes r's place once evidence is there. Only ACCEPTED and UNKNOWN advance, and only to what
// the evidence shows: APPLIED, CONFLICT, NOT_APPLIED, and from ACCEPTED also STOPPED or UNKNOWN. Who stands for it (By) must be
// said, and for what is not APPLIED on what evidence (Detail). The request's method, operation and digest stay r's. The error
// is [ErrNotAdvanced] or an *[InvalidError] (R23).
func (r Receipt) Advance(next Receipt) (Receipt, error) {
	next.Method, next.OperationID, next.Digest, next.Replayed = r.Method, r.OperationID, r.Digest, false
	if !r.Result.mayBecome(next.Result) {
		return r, ErrNotAdvanced
	}
	if next.By == "" {
		return r, invalid("/by", "must say who stands for the evidence")
	}
	if next.Result != ResultApplied && next.Detail == "" {
		return r, invalid("/detail", "must say on what evidence")
	}
	if err := next.Validate(); err != nil {
		return r, err
	}
	return next.Clean(), nil
}

func (c ResultCode) mayBecome(next ResultCode) bool {
	switch next {
	case ResultApplied, ResultConflict, ResultNotApplied:
		return c == ResultUnknown || c == ResultAccepted
	case ResultStopped, ResultUnknown:
		return c == ResultAccepted
	case ResultAccepted, ResultRefused:
	}
	return false
}

// Clean returns r as it can be stored and sent: texts are cut to their sizes, control characters and invalid UTF-8 are replaced,
// an effect of the failure that is none of the three becomes unknown, and its cause is left out. Cleaning twice changes nothing.
func (r Receipt) Clean() Receipt {
	r.Method, r.OperationID = cutText(r.Method, MaxMethod), cutText(r.OperationID, MaxMetaText)
	r.Ref, r.Detail, r.By = cutText(r.Ref, MaxRef), cutText(r.Detail, MaxDetail), cutText(r.By, MaxBy)
	if r.Barrier != nil {
		b := Barrier{cutText(r.Barrier.ID, MaxMetaText), r.Barrier.ActiveCalls, cutText(r.Barrier.Epoch, MaxMetaText)}
		r.Barrier = &b
	}
	if r.Failure != nil {
		f := Failure{
			Code: r.Failure.Code, Reason: Reason(cutText(string(r.Failure.Reason), MaxReason)), Effect: r.Failure.Effect,
			Message: cutText(r.Failure.Message, MaxDetail), Current: r.Failure.Current,
		}
		if f.Effect > EffectUnknown {
			f.Effect = EffectUnknown
		}
		r.Failure = &f
	}
	return r
}

// MaxMethod is the limit of a method's name, in bytes.
const MaxMethod = 256
