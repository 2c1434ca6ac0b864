package contract

// OutcomeState is the closed set of what is known about an item (S6).
type OutcomeState string

// The four states. Applied needs positive evidence of the effect, failed and skipped need evidence that there was none,
// everything else is ambiguous.
const (
	Applied   OutcomeState = "applied"
	Failed    OutcomeState = "failed"
	Skipped   OutcomeState = "skipped"
	Ambiguous OutcomeState = "ambiguous"
)

// Valid says whether s is one of the four states.
func (s OutcomeState) Valid() bool {
	switch s {
	case Applied, Failed, Skipped, Ambiguous:
		return true
	}
	return false
}

// MarshalText refuses everything but the four states, so that no encoder writes another.
func (s OutcomeState) MarshalText() ([]byte, error) {
	if !s.Valid() {
		return nil, invalid("", problemState)
	}
	return []byte(s), nil
}

// UnmarshalText refuses everything but the four states: another is an error, never a default. The error is an
// *[InvalidError].
func (s *OutcomeState) UnmarshalText(text []byte) error {
	state := OutcomeState(text)
	if !state.Valid() {
		return invalid("", problemState)
	}
	*s = state
	return nil
}

const problemState = "must be applied, failed, skipped or ambiguous"

// known returns s, or Ambiguous for what is not a state: nothing can be concluded from it.
func (s OutcomeState) known() OutcomeState {
	if s.Valid() {
		return s
	}
	return Ambiguous
}

// The reasons that the broker itself gives an outcome; an item that failed with a [Failure] carries that failure's
// reason, or its code.
const (
	ReasonCancelled    Reason = "cancelled"     // the operation was cancelled before it ran
	ReasonNotStarted   Reason = "not_started"   // the executor was never called for this item
	ReasonPanic        Reason = "panic"         // the executor panicked or ended its goroutine
	ReasonNoOutcome    Reason = "no_outcome"    // the executor returned neither an outcome nor an error
	ReasonTimeout      Reason = "timeout"       // the executor did not return within its lease
	ReasonRolledBack   Reason = "rolled_back"   // the item's writes were undone because an SQL error was swallowed
	ReasonNotCompleted Reason = "not_completed" // the claim was never completed
	ReasonNotCommitted Reason = "not_committed" // the item's transaction was not committed, and that is known
	ReasonFoundApplied Reason = "found_applied" // Resolve: the reader found the effect
	ReasonFoundAbsent  Reason = "found_absent"  // Resolve: the reader found that there was none
	ReasonStillUnknown Reason = "still_unknown" // Resolve: the reader could not tell
)

// OperationItemOutcome is what is known about one item. Its texts are for people and programs to read: an outcome that
// is stored or sent holds them as [OperationItemOutcome.Clean] leaves them.
type OperationItemOutcome struct {
	ItemID string       `json:"item_id"`
	State  OutcomeState `json:"state"`
	Ref    string       `json:"ref,omitempty"`    // what the effect made, in the target's terms; may be empty
	Reason Reason       `json:"reason,omitempty"` // why the state is not applied, as a stable word; may be empty
	Detail string       `json:"detail,omitempty"` // the same for a person, or a verdict's evidence; may be empty

	// By is who gave the verdict, for an item that Resolve settled; empty for what an executor said.
	By string `json:"by,omitempty"`
	// Provisional marks a verdict that a late effect could still contradict, since the target does not refuse one.
	Provisional bool `json:"provisional,omitzero"`
}

// Sizes that outcomes are cut to, in bytes. An outcome can never be too large to be stored.
const (
	MaxRef    = 512
	MaxReason = 128
	MaxDetail = 1024
	MaxBy     = 128
)

// Clean returns o as it can be stored and sent, whatever an executor put into it: texts are cut to their sizes, control
// characters and invalid UTF-8 are replaced, and what is not a state becomes ambiguous. Cleaning twice changes nothing.
func (o OperationItemOutcome) Clean() OperationItemOutcome {
	return OperationItemOutcome{
		ItemID: cutText(o.ItemID, maxItemID),
		State:  o.State.known(),
		Ref:    cutText(o.Ref, MaxRef),
		Reason: Reason(cutText(string(o.Reason), MaxReason)),
		Detail: cutText(o.Detail, MaxDetail),
		By:     cutText(o.By, MaxBy),

		Provisional: o.Provisional,
	}
}

// needsAttention says whether o is other than applied or left out by choice.
func (o OperationItemOutcome) needsAttention() bool {
	switch o.State {
	case Applied:
		return false
	case Skipped:
		return o.Reason == ReasonCancelled || o.Reason == ReasonNotStarted || o.Reason == ReasonNotCommitted
	}
	return true
}
