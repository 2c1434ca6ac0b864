package contract

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The four kinds of methods.
var (
	originating = Method{Name: "originating"}
	resend      = Method{Name: "resend", Resend: true}
	redelivered = Method{Name: "redelivered", Resend: true, Redelivered: true}
	readOnly    = Method{Name: "read-only", ReadOnly: true}
)

var (
	mutations  = []Method{originating, resend, redelivered}
	deliveries = []Delivery{SentUnknown, NeverSent, ServerSeen, Answered}
	effects    = []Effect{EffectByCode, EffectNone, EffectUnknown}
)

// everyFailure returns no failure, each code and one that is none with each effect, and a failure without content.
func everyFailure() []*Failure {
	all := []*Failure{nil}
	for _, code := range append(codes(), "INTERNAL") {
		for _, e := range effects {
			all = append(all, &Failure{Code: code, Effect: e})
		}
	}
	return append(all, &Failure{})
}

func codes() []FailureCode {
	var all []FailureCode
	for _, rule := range RetryTable() {
		all = append(all, rule.Code)
	}
	return all
}

// everyDecision calls fn for every call of the methods that can fail.
func everyDecision(methods []Method, fn func(Method, *Failure, Delivery, Decision)) {
	for _, m := range methods {
		for _, f := range everyFailure() {
			for _, d := range deliveries {
				fn(m, f, d, Decide(m, f, d))
			}
		}
	}
}

// R16: the whole decision, for people to read: testdata/decide.txt. CONFIRMEXEC_UPDATE=1 writes it anew.
func TestDecideTable(t *testing.T) {
	const path = "testdata/decide.txt"
	if os.Getenv("CONFIRMEXEC_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(decideTable()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), decideTable())
}

func decideTable() string {
	const form = "%-12s  %-19s  %-8s  %-12s  %-18s  %-8s  %s\n"
	text := "# Decide(method, failure, delivery): made by TestDecideTable. \"any\" is all four deliveries.\n" +
		fmt.Sprintf(form, "# method", "failure", "effect", "delivery", "=> action", "effect", "same operation again")
	for _, m := range append(mutations, readOnly) {
		text += "\n"
		for _, f := range everyFailure() {
			for _, d := range distinct(m, f) {
				name, effect := "none", "-"
				if f != nil {
					name, effect = string(f.Code), f.Effect.String()
				}
				got := Decide(m, f, d)
				shown := d.String()
				if len(distinct(m, f)) == 1 {
					shown = "any"
				}
				text += fmt.Sprintf(form, m.Name, fmt.Sprintf("%.19s", orWord(name)), effect, shown, got.Action, got.Effect, yes(got.SameOperation))
			}
		}
	}
	return text
}

// distinct returns one delivery if the decision is the same for all of them, else all.
func distinct(m Method, f *Failure) []Delivery {
	for _, d := range deliveries {
		if Decide(m, f, d) != Decide(m, f, SentUnknown) {
			return deliveries
		}
	}
	return deliveries[:1]
}

func orWord(name string) string {
	if name == "" {
		return "(empty)"
	}
	return name
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

type call struct {
	name string
	m    Method
	f    *Failure
	d    Delivery
	want Decision
}

func checkCalls(t *testing.T, calls []call) {
	t.Helper()
	for _, c := range calls {
		assert.Equal(t, c.want, Decide(c.m, c.f, c.d), "%s: %s, %v, %s", c.name, c.m.Name, c.f, c.d)
	}
}

// R4, R11, R13, R18: without the receiver's own failure nothing is known of a mutation that may have been received, whatever its
// status code was: it is queried. A deadline that the receiver itself tells is unknown too.
func TestDecideUnknown(t *testing.T) {
	var calls []call
	for _, m := range mutations {
		for _, d := range []Delivery{SentUnknown, ServerSeen, Answered, Delivery(99)} {
			calls = append(calls,
				call{"R4, R11", m, nil, d, Decision{Reconcile, EffectUnknown, m.Resend}},
				call{"R18", m, &Failure{Code: "INTERNAL"}, d, Decision{Reconcile, EffectUnknown, m.Resend}},
				call{"R18", m, &Failure{Code: "CANCELLED", Effect: EffectNone}, d, Decision{Reconcile, EffectUnknown, m.Resend}},
				call{"R13", m, &Failure{Code: DeadlineExceeded}, d, Decision{TreatAsUnknown, EffectUnknown, m.Resend}})
		}
	}
	checkCalls(t, calls)
}

// R5, R6, R7, R8: a refusal before the effect is over; only after a refreshed state the same operation may go once more, where the
// method's table allows it.
func TestDecideRefused(t *testing.T) {
	for _, m := range mutations {
		checkCalls(t, []call{
			{"R5", m, &Failure{Code: InvalidArgument}, Answered, Decision{FixRequest, EffectNone, false}},
			{"R6", m, &Failure{Code: Unauthenticated}, Answered, Decision{Reauthenticate, EffectNone, false}},
			{"R7", m, &Failure{Code: PermissionDenied}, Answered, Decision{StopAndAuthorize, EffectNone, false}},
			{"R8", m, &Failure{Code: FailedPrecondition}, Answered, Decision{RefreshState, EffectNone, m.Resend}},
		})
	}
}

// R9, R10, R14, R15: a conflict is read again and nothing is assumed; exhaustion waits for a release; nothing takes the place of
// what was not found; what exists is read.
func TestDecideStanding(t *testing.T) {
	for _, m := range mutations {
		checkCalls(t, []call{
			{"R9", m, &Failure{Code: Aborted}, Answered, Decision{RereadRevision, EffectUnknown, false}},
			{"R9", m, ErrKeyReused, Answered, Decision{RereadRevision, EffectNone, false}},
			{"R10", m, &Failure{Code: ResourceExhausted}, Answered, Decision{AwaitRelease, EffectNone, m.Resend}},
			{"R14", m, &Failure{Code: NotFound}, Answered, Decision{DoNotSubstitute, EffectNone, false}},
			{"R15", m, &Failure{Code: AlreadyExists}, Answered, Decision{ReadExisting, EffectUnknown, false}},
			{"R15", m, ErrInProgress, Answered, Decision{ReadExisting, EffectUnknown, false}},
		})
	}
}

// R12: UNAVAILABLE is reconciled before anything else; only what was never sent is sent, and that for the first time. A receiver
// that knows that nothing happened says so.
func TestDecideUnavailable(t *testing.T) {
	for _, m := range mutations {
		checkCalls(t, []call{
			{"sent", m, nil, SentUnknown, Decision{Reconcile, EffectUnknown, m.Resend}},
			{"never sent", m, nil, NeverSent, Decision{SendOriginal, EffectNone, true}},
			{"told", m, &Failure{Code: Unavailable}, Answered, Decision{Reconcile, EffectUnknown, m.Resend}},
			{"told, none", m, &Failure{Code: Unavailable, Effect: EffectNone}, Answered, Decision{Reconcile, EffectNone, true}},
			{"told and never sent", m, &Failure{Code: Unavailable}, NeverSent, Decision{Reconcile, EffectUnknown, m.Resend}},
		})
	}
}

// R120: a refusal whose maker does not know the effect is no licence for a changed or newly authorized operation: the original one
// is queried first, and not sent again on the strength of it.
func TestDecideRefusedWithUnknownEffect(t *testing.T) {
	for _, m := range mutations {
		for _, rule := range RetryTable() {
			if rule.Effect == EffectNone {
				f := &Failure{Code: rule.Code, Effect: EffectUnknown}
				assert.Equal(t, Decision{Reconcile, EffectUnknown, false}, Decide(m, f, Answered), rule.Code)
			}
		}
	}
}

// R107, R108: a read is retried when the answer did not come, and told what every other failure says.
func TestDecideRead(t *testing.T) {
	retried := map[FailureCode]bool{Unavailable: true, DeadlineExceeded: true, "INTERNAL": true, "": true}
	everyDecision([]Method{readOnly}, func(_ Method, f *Failure, d Delivery, got Decision) {
		assert.Equal(t, EffectNone, got.Effect, "a read has none")
		again := f == nil || retried[f.Code]
		assert.Equal(t, again, got.Action == RetryRead, "%v %s", f, d)
		assert.Equal(t, again, got.SameOperation)
		if !again {
			rule, _ := f.Code.Rule()
			assert.Equal(t, rule.Action, got.Action)
		}
	})
}

// R12, R16, R107, R120: what must hold of every decision about a mutation, whatever the table says.
func TestDecideNeverSendsAgainUnchanged(t *testing.T) {
	again := map[Action]bool{SendOriginal: true, RetryRead: true, "retry": true, "resend": true, "": true}
	n := 0
	everyDecision(mutations, func(m Method, f *Failure, d Delivery, got Decision) {
		n++
		what := fmt.Sprintf("%s, %v, %s: %+v", m.Name, f, d, got)
		assert.Equal(t, f == nil && d == NeverSent, got.Action == SendOriginal, what)
		assert.NotEqual(t, RetryRead, got.Action, what)
		if f != nil || d != NeverSent {
			assert.False(t, again[got.Action], what)
		}
		assert.Contains(t, []Effect{EffectNone, EffectUnknown}, got.Effect, what)
		if got.Effect == EffectUnknown {
			assert.Contains(t, []Action{Reconcile, TreatAsUnknown, RereadRevision, ReadExisting}, got.Action, "it begins by reading: "+what)
			assert.False(t, got.SameOperation && !m.Resend, "an unknown originating operation is only queried: "+what)
		}
		if got.Effect == EffectNone {
			assert.True(t, f == nil && d == NeverSent || f.KnownNoEffect(), "somebody must know it: "+what)
		}
		if f != nil {
			assert.Equal(t, Decide(m, f, SentUnknown), got, "a failure is the same by every way: "+what)
		}
	})
	assert.Equal(t, 3*(1+11*3+1)*4, n)
}

// R16: a method that says nothing of itself is the one that allows least, and the zero decision allows nothing.
func TestDecideZero(t *testing.T) {
	everyDecision([]Method{{}}, func(_ Method, f *Failure, d Delivery, got Decision) {
		assert.Equal(t, Decide(originating, f, d), got)
		for _, m := range mutations {
			assert.True(t, Decide(m, f, d).SameOperation || !got.SameOperation)
		}
	})
	assert.NotContains(t, RetryTable(), Rule{})
	assert.False(t, Decision{}.SameOperation)
}

// R12: the names of the evidence are stable; what is none of it counts as the least.
func TestDelivery(t *testing.T) {
	var names []string
	for _, d := range append(deliveries, Delivery(99)) {
		names = append(names, d.String())
	}
	assert.Equal(t, "sent_unknown never_sent server_seen answered sent_unknown", strings.Join(names, " "))
	assert.Zero(t, SentUnknown)
}
