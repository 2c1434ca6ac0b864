package contract

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// OperationResult is what came of a confirmation: one outcome per item, in item order. Everything that it tells is
// computed from the outcomes on every call; no count and no text is stored or sent (S7). Its zero value knows nothing
// and is never a success.
type OperationResult struct {
	IdempotencyKey uuid.UUID
	Outcomes       []OperationItemOutcome
	Replayed       bool // this call ran nothing: it tells what an earlier one recorded
}

// Tally counts outcomes by state. Its total is the number of items, always (S7).
type Tally struct {
	Applied, Failed, Skipped, Ambiguous int
}

// Total is the number of items.
func (t Tally) Total() int { return t.Applied + t.Failed + t.Skipped + t.Ambiguous }

// Tally counts r's outcomes. What is not a state counts as ambiguous.
func (r OperationResult) Tally() Tally {
	var t Tally
	for _, o := range r.Outcomes {
		switch o.State {
		case Applied:
			t.Applied++
		case Failed:
			t.Failed++
		case Skipped:
			t.Skipped++
		default:
			t.Ambiguous++
		}
	}
	return t
}

// Cancelled says whether the operation was cancelled before it ran: every item is skipped for that reason.
func (r OperationResult) Cancelled() bool {
	for _, o := range r.Outcomes {
		if o.State != Skipped || o.Reason != ReasonCancelled {
			return false
		}
	}
	return len(r.Outcomes) > 0
}

// Pruned says whether the operation was settled, and its outcomes are no longer kept.
func (r OperationResult) Pruned() bool { return r.Replayed && len(r.Outcomes) == 0 }

// ReloadToCheck is the action of the one recovery instruction.
const ReloadToCheck = "reload_to_check"

// RecoveryInstruction says how a person gets out of an unclear outcome: by looking, never by confirming again.
type RecoveryInstruction struct {
	Action         string    `json:"action"`          // ReloadToCheck
	Message        string    `json:"message"`         // the same for a person
	IdempotencyKey uuid.UUID `json:"idempotency_key"` // what the broker's Resolve takes
}

// Recovery returns the instruction; nil unless an item is ambiguous (S8).
func (r OperationResult) Recovery() *RecoveryInstruction {
	t := r.Tally()
	if t.Ambiguous == 0 {
		return nil
	}
	return &RecoveryInstruction{
		Action: ReloadToCheck,
		Message: fmt.Sprintf("It is not known whether %d of %s took effect. Reload to check; do not confirm again.",
			t.Ambiguous, count(t.Total(), "item")),
		IdempotencyKey: r.IdempotencyKey,
	}
}

// Err returns nil when every item is applied or was left out by choice, and an *[UnsettledError] when an item is
// failed, ambiguous, cancelled or was never started, or when there is no outcome at all (S8).
func (r OperationResult) Err() error {
	for _, o := range r.Outcomes {
		if o.needsAttention() {
			return &UnsettledError{r.Tally(), r.IdempotencyKey}
		}
	}
	if len(r.Outcomes) == 0 {
		return &UnsettledError{Tally{}, r.IdempotencyKey}
	}
	return nil
}

// UnsettledError tells a caller that only looks at errors that a result needs attention. [ErrUnsettled] is in its
// chain.
type UnsettledError struct {
	Tally          Tally
	IdempotencyKey uuid.UUID // what Resolve takes; not part of Error
}

// Error tells the tally and where to look.
func (e *UnsettledError) Error() string {
	if e == nil {
		return ErrUnsettled.Error()
	}
	t := e.Tally
	return fmt.Sprintf("%v (%d applied, %d failed, %d skipped, %d ambiguous)",
		ErrUnsettled, t.Applied, t.Failed, t.Skipped, t.Ambiguous)
}

// Unwrap returns [ErrUnsettled].
func (e *UnsettledError) Unwrap() error { return ErrUnsettled }

// Summary tells the tally to a person in one or two sentences, names up to three items of each state that needs
// attention, and says what to do about unclear ones. It is made of counts and item ids only.
func (r OperationResult) Summary() string {
	t := r.Tally()
	switch {
	case r.Pruned():
		return "It was settled before; the details are no longer kept."
	case t.Total() == 0:
		return "No outcome is known of any item."
	case r.Cancelled():
		return fmt.Sprintf("Cancelled before it ran: 0 of %s applied, %d skipped.", count(t.Total(), "item"), t.Skipped)
	}
	s := fmt.Sprintf("%d of %s applied", t.Applied, count(t.Total(), "item")) +
		r.part(Failed, t.Failed, "failed") + r.part(Skipped, t.Skipped, "skipped") +
		r.part(Ambiguous, t.Ambiguous, "unclear") + "."
	if t.Ambiguous > 0 {
		s += " Reload to check what is unclear; do not confirm again."
	}
	return s
}

// part tells n items of a state, and which need attention; nothing when n is 0.
func (r OperationResult) part(state OutcomeState, n int, word string) string {
	if n == 0 {
		return ""
	}
	const most = 3
	var ids []string
	for _, o := range r.Outcomes {
		if o.State.known() == state && o.needsAttention() {
			ids = append(ids, cutText(o.ItemID, maxItemID))
		}
	}
	s := fmt.Sprintf(", %d %s", n, word)
	switch {
	case len(ids) > most:
		s += fmt.Sprintf(" (%s and %d more)", strings.Join(ids[:most], ", "), len(ids)-most)
	case len(ids) > 0:
		s += " (" + strings.Join(ids, ", ") + ")"
	}
	return s
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
