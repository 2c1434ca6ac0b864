package contract

// Delivery is what the sender of one call knows of its way to the receiver. It is evidence, not a guess from a status code: a
// library or a proxy can make most codes by itself.
type Delivery uint8

const (
	// SentUnknown means that it may have been received. The zero value.
	SentUnknown Delivery = iota
	// NeverSent means that no attempt at the call has put its message on a connection: it cannot have been received.
	NeverSent
	// ServerSeen means that the receiver has begun with it, and that how it ended is not known.
	ServerSeen
	// Answered means that the receiver's own answer arrived.
	Answered
)

// String tells the delivery's name: "sent_unknown", "never_sent", "server_seen" or "answered".
func (d Delivery) String() string {
	switch d {
	case NeverSent:
		return "never_sent"
	case ServerSeen:
		return "server_seen"
	case Answered:
		return "answered"
	case SentUnknown:
	}
	return "sent_unknown"
}

// Decision is what the caller of a call that failed does next, and what is known of the effect. Its zero value allows nothing.
type Decision struct {
	Action Action
	// Effect is EffectNone when it is certain that nothing happened, else EffectUnknown.
	Effect Effect
	// SameOperation says that the original operation may be sent once more when Action has been done, with the same id, key and
	// bytes. What is false here needs a new operation, or none at all.
	SameOperation bool
}

// Decide is the one decision about a call that failed: from the method, the failure that the receiver's answer held (nil if
// there was no such answer) and the evidence of the call's way. It is pure and total, and never says of a mutation that may
// have been received that it be sent again as it is (R4-R16, R18).
//
// A failure is believed only as the receiver's own: whoever calls Decide gives nil for a bare status code. One whose code is
// not among the ten says nothing about the effect, and neither does an answer that holds no failure: an answer that is worth
// something is a [Receipt] (R21). Where a failure says that its effect is unknown, although by its code there was none, the
// code's action presumes too much: the original operation is queried first (R120).
func Decide(m Method, f *Failure, evidence Delivery) Decision {
	switch {
	case m.ReadOnly:
		return decideRead(f)
	case f == nil && evidence == NeverSent:
		return Decision{SendOriginal, EffectNone, true}
	case f == nil:
		return Decision{Reconcile, EffectUnknown, m.Resend}
	}
	rule, ok := f.Code.Rule()
	if !ok {
		return Decision{Reconcile, EffectUnknown, m.Resend}
	}
	d := Decision{Action: rule.Action, Effect: EffectUnknown}
	if f.KnownNoEffect() {
		d.Effect = EffectNone
	}
	if d.Effect == EffectUnknown && rule.Effect == EffectNone {
		return Decision{Reconcile, EffectUnknown, false}
	}
	switch rule.Action { //nolint:exhaustive // after every other action the original operation is over
	case RefreshState, AwaitRelease:
		d.SameOperation = m.Resend
	case Reconcile, TreatAsUnknown:
		d.SameOperation = m.Resend || d.Effect == EffectNone
	}
	return d
}

// decideRead is the decision about a read: it has no effect, and is repeated when the answer does not depend on it.
func decideRead(f *Failure) Decision {
	if f == nil || f.Code == Unavailable || f.Code == DeadlineExceeded {
		return Decision{RetryRead, EffectNone, true}
	}
	rule, ok := f.Code.Rule()
	if !ok {
		return Decision{RetryRead, EffectNone, true}
	}
	return Decision{rule.Action, EffectNone, false}
}
