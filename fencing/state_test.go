package fencing

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// kept is a kind of state: a sample, its stored form, and something that changes it.
type kept struct {
	name   string // of its value
	sample any
	form   string // what is stored of the sample
	decode func(store.Value) (any, error)
	change func(ctx context.Context, spy *spyValues) error
}

func keptAs[S state](name string, sample S, form string, change func(context.Context, *spyValues) error) kept {
	return kept{name, sample, form, func(v store.Value) (any, error) { s, err := decode[S](v); return s, err }, change}
}

var (
	sampleBinding = Binding{AgentID: "a1", CellID: "c1", BootID: "b1", Generation: 3}
	sampleSession = Session{Binding: sampleBinding, Epoch: "e1"}
	sampleAsk     = PermitRequest{Resource: "line-1", ReservationID: "r1", ExecutionID: "x1", ExpectedRevision: 4, Deadline: 1_700_000_000_000}
	samplePermit  = Permit{ID: "p1", PermitRequest: sampleAsk, Token: 2, Epoch: "e1", Binding: sampleBinding}
)

// everyKept lists the states of these files: what they look like in the store is a promise to the next version.
var everyKept = []kept{
	keptAs("office/d", Office{"e1", 2}, `{"epoch":"e1","number":2}`,
		func(ctx context.Context, spy *spyValues) error { _, err := space.TakeOffice(ctx, spy, "d"); return err }),
	keptAs("session/p", sampleSession, `{"agent_id":"a1","cell_id":"c1","boot_id":"b1","generation":3,"epoch":"e1"}`,
		func(ctx context.Context, spy *spyValues) error {
			_, err := fenceOf(spy).ApproveAgent(ctx, "p", "a1", "c1")
			return err
		}),
	keptAs("token/line-1", Mark{2, "p1"}, `{"token":2,"holder":"p1"}`,
		func(ctx context.Context, spy *spyValues) error {
			_, err := fenceOf(spy).ShowToken(ctx, "line-1", 3, "p2")
			return err
		}),
	keptAs("reservation/line-1", Reservation{Lease: Lease{"r1", "a1", 2}, State: ReservationReleased, Revision: 5, ExecutionID: "x1",
		Evidence: Evidence{"x1", contract.ResultApplied, "reconciler", "seen"}},
		`{"reservation_id":"r1","agent_id":"a1","token":2,"state":"released","revision":5,"execution_id":"x1",`+
			`"evidence":{"execution_id":"x1","result":"APPLIED","by":"reconciler","detail":"seen"}}`,
		func(ctx context.Context, spy *spyValues) error {
			_, err := fenceOf(spy).Reserve(ctx, "line-1", "r2", "a1")
			return err
		}),
	keptAs("permit/x1", samplePermit,
		`{"id":"p1","resource":"line-1","reservation_id":"r1","execution_id":"x1","expected_revision":4,"deadline":1700000000000,`+
			`"token":2,"epoch":"e1","binding":{"agent_id":"a1","cell_id":"c1","boot_id":"b1","generation":3}}`,
		func(ctx context.Context, spy *spyValues) error {
			spy.put("session/p", `{"agent_id":"a1","cell_id":"c1","boot_id":"b1","generation":3,"epoch":"e1"}`)
			_, _, err := fenceOf(spy).IssuePermit(ctx, "p", sampleAsk)
			return err
		}),
	keptAs("permit_mark/line-1", PermitMark{Mark{2, "p1"}, "x1", false}, `{"token":2,"holder":"p1","execution_id":"x1","void":false}`,
		func(ctx context.Context, spy *spyValues) error {
			_, err := fenceOf(spy).EndPermits(ctx, "line-1", 3)
			return err
		}),
}

// R49: what is stored is read again as it was, and has one form.
func TestStatesAreKept(t *testing.T) {
	for _, k := range everyKept {
		content, err := json.Marshal(k.sample)
		require.NoError(t, err, k.name)
		assert.Equal(t, k.form, string(content), k.name)
		read, err := k.decode(store.Value{Revision: 1, Content: content})
		require.NoError(t, err, k.name)
		assert.Equal(t, k.sample, read, k.name)

		none, err := k.decode(store.Value{})
		require.NoError(t, err, k.name)
		zero, err := json.Marshal(none)
		require.NoError(t, err, k.name)
		_, err = k.decode(store.Value{Revision: 1, Content: zero})
		assert.ErrorIs(t, err, ErrUnreadable, "%s: what was stored is never nothing", k.name)
	}
}

// damaged are contents that no version of a state has.
func damaged(form string) []string {
	return []string{
		"", "null", "{}", "[]", "0", `"x"`, "{", form + "x", form + form, `[` + form + `]`,
		strings.Replace(form, "{", `{"of_a_later_version":1,`, 1),
		strings.Replace(form, "{", form[:strings.Index(form, ",")]+",", 1), // a name twice
		strings.Replace(form, `"`, "\"\xff", 1),
	}
}

// R49: a state that cannot be read is refused, is not changed, and is never taken for an empty one, which would count from 1 again.
func TestUnreadableStateIsRefused(t *testing.T) {
	for _, k := range everyKept {
		for _, content := range append(damaged(k.form), damagedNumbers(k.form)...) {
			refusesUnreadable(t, k, content)
		}
		for _, part := range impossible[k.name] {
			require.Contains(t, k.form, part[0])
			refusesUnreadable(t, k, strings.Replace(k.form, part[0], part[1], 1))
		}
	}
}

// impossible are parts of which each makes a state that nobody can have stored.
var impossible = map[string][][2]string{
	"office/d":     {{`"epoch":"e1"`, `"epoch":""`}, {`"number":2`, `"number":0`}, {`"number":2`, `"number":null`}},
	"token/line-1": {{`"holder":"p1"`, `"holder":""`}, {`"token":2`, `"token":0`}},
	"session/p": {
		{`"agent_id":"a1"`, `"agent_id":""`}, {`"cell_id":"c1"`, `"cell_id":null`}, {`"boot_id":"b1"`, `"boot_id":""`},
		{`"generation":3`, `"generation":0`}, {`"epoch":"e1"`, `"epoch":""`},
	},
	"reservation/line-1": {
		{`"released"`, `"lent"`}, {`"released"`, `"active"`}, {`"APPLIED"`, `"UNKNOWN"`}, {`"result":"APPLIED",`, ``},
		{`"by":"reconciler"`, `"by":""`},
		{`"state"`, `"execution_id":"","state"`}, {`"x1","evidence"`, `"","evidence"`}, {`"token":2`, `"token":0`},
		{`"revision":5`, `"revision":0`},
		{`"r1"`, `""`}, {`"a1"`, `""`},
	},
	"permit/x1": {
		{`"id":"p1"`, `"id":""`}, {`"line-1"`, `""`}, {`"token":2`, `"token":0`},
		{`"epoch":"e1"`, `"epoch":""`}, {`"generation":3`, `"generation":0`},
	},
	"permit_mark/line-1": {{`"holder":"p1"`, `"holder":""`}, {`"execution_id":"x1"`, `"execution_id":""`}, {`"token":2`, `"token":0`}},
}

// damagedNumbers puts numbers that never were in the place of each number of a form, and nothing in the place of each name.
func damagedNumbers(form string) (all []string) {
	for _, old := range []string{":2", ":3", ":4", ":5", ":1700000000000"} {
		if !strings.Contains(form, old) {
			continue
		}
		for _, never := range []string{":-1", ":9223372036854775808", ":1.5", `:"2"`, ":[]"} {
			all = append(all, strings.Replace(form, old, never, 1))
		}
	}
	return all
}

func refusesUnreadable(t *testing.T, k kept, content string) {
	t.Helper()
	spy := newSpy()
	spy.put(k.name, content)
	err := k.change(t.Context(), spy)
	assert.ErrorIs(t, err, ErrUnreadable, "%s: %s", k.name, content)
	assert.Empty(t, spy.wrote(), "%s: %s", k.name, content)
	assert.Equal(t, content, spy.content(k.name))
	f, _ := contract.FailureOf(err)
	assert.NotContains(t, f.Error(), "a1", "a refusal quotes nothing that is stored")
}

// R49: whatever bytes are stored: they are refused, or they are a state that is stored again as it was read.
func FuzzStoredState(f *testing.F) {
	for i, k := range everyKept {
		f.Add(uint8(i), []byte(k.form))
		for _, content := range append(damaged(k.form), damagedNumbers(k.form)...) {
			f.Add(uint8(i), []byte(content))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, content []byte) {
		k := everyKept[int(kind)%len(everyKept)]
		s, err := k.decode(store.Value{Revision: 1, Content: content})
		if err != nil {
			refusesUnreadable(t, k, string(content))
			return
		}
		again, err := json.Marshal(s)
		require.NoError(t, err)
		read, err := k.decode(store.Value{Revision: 1, Content: again})
		require.NoError(t, err, "%s", again)
		assert.Equal(t, s, read)
		assert.NotContains(t, string(again), ":-", "no number is negative")
	})
}

// R41: what is written was decided on what stood: a change that somebody else made meanwhile is seen.
func TestUpdateDecidesOnWhatStands(t *testing.T) {
	spy := newSpy()
	quicker := 0
	spy.before = func(call string) error {
		if strings.HasPrefix(call, "swap") && quicker < 3 {
			quicker++
			spy.put("office/d", `{"epoch":"other","number":`+string(rune('0'+quicker))+`}`)
		}
		return nil
	}
	o, err := space.TakeOffice(t.Context(), spy, "d")
	require.NoError(t, err)
	assert.Equal(t, int64(4), o.Number, "one more than the last of the three that were quicker")
	assert.Equal(t, []string{"load office/d", "swap office/d", "swap office/d", "swap office/d", "swap office/d"}, spy.calls)
}

// What the store did not do is not told as done.
func TestUpdateTellsNothingAfterAFault(t *testing.T) {
	for _, op := range []string{"load", "swap"} {
		spy := newSpy()
		spy.before = func(call string) error {
			if strings.HasPrefix(call, op) {
				return errDown
			}
			return nil
		}
		o, err := space.TakeOffice(t.Context(), spy, "d")
		assert.ErrorIs(t, err, errDown)
		assert.Zero(t, o)
	}
}

// A refusal in the middle of a race is one too.
func TestUpdateMayBeRefusedAfterARace(t *testing.T) {
	spy := newSpy()
	spy.before = func(call string) error {
		if call == "swap token/line" && spy.content("token/line") == "" {
			spy.put("token/line", `{"token":9,"holder":"other"}`)
		}
		return nil
	}
	m, err := fenceOf(spy).ShowToken(t.Context(), "line", 5, "p")
	assert.Equal(t, standing(ErrTokenStale, 9), err)
	assert.Equal(t, Mark{9, "other"}, m, "what stands")
	assert.JSONEq(t, `{"token":9,"holder":"other"}`, spy.content("token/line"))
}

// A28: it counts on by one, and never around.
func TestNext(t *testing.T) {
	for _, n := range []int64{0, 1, 41, math.MaxInt64 - 1} {
		got, err := next(n)
		require.NoError(t, err)
		assert.Equal(t, n+1, got)
	}
	for _, n := range []int64{math.MaxInt64, -1, math.MinInt64} {
		got, err := next(n)
		assert.ErrorIs(t, err, ErrExhausted)
		assert.Equal(t, n, got)
	}
}

// R41, A28: each number ends in a refusal, with the state as it was.
func TestEveryNumberCanBeExhausted(t *testing.T) {
	const end = math.MaxInt64
	office := Office{"e1", end}
	o, err := office.Take("e2")
	assert.ErrorIs(t, err, ErrExhausted)
	assert.Equal(t, office, o)

	session := Session{Binding: Binding{"a1", "c1", "b1", end}, Epoch: "e1"}
	s, err := session.Activate(Binding{"a1", "c1", "b2", 0}, "e1")
	assert.ErrorIs(t, err, ErrExhausted)
	assert.Equal(t, session, s)

	for _, r := range []Reservation{
		{Lease: Lease{"r1", "a1", end}, State: ReservationReleased, Revision: 1},
		{Lease: Lease{"r1", "a1", 1}, State: ReservationReleased, Revision: end},
	} {
		got, err := r.Reserve("r2", "a1")
		assert.ErrorIs(t, err, ErrExhausted)
		assert.Equal(t, r, got)
	}
	active := Reservation{Lease: Lease{"r1", "a1", 1}, State: ReservationActive, Revision: end}
	ask := samplePermit
	ask.ExpectedRevision = end
	got, p, err := active.Issue(ask)
	assert.ErrorIs(t, err, ErrExhausted)
	assert.Zero(t, p)
	assert.Equal(t, active, got)
	got, err = active.Fence(active.Lease)
	assert.ErrorIs(t, err, ErrExhausted)
	assert.Equal(t, active, got)
	got, err = active.Release(active.Lease, Evidence{})
	assert.ErrorIs(t, err, ErrExhausted)
	assert.Equal(t, active, got)

	last, err := Mark{end - 1, "p"}.Show(end, "q")
	require.NoError(t, err)
	assert.Equal(t, Mark{end, "q"}, last)
	_, err = last.Show(math.MinInt64, "p")
	assert.ErrorIs(t, err, contract.ErrInvalid)
}

// A12: a number that is expected is never "any".
func TestExpect(t *testing.T) {
	for _, missing := range []int64{0, -1, math.MinInt64} {
		for _, current := range []int64{0, 1, missing} {
			err := expect("/n", missing, current)
			assert.ErrorIs(t, err, contract.ErrInvalid)
			assert.Equal(t, "INVALID_ARGUMENT /n", answer(err))
		}
	}
	assert.NoError(t, expect("/n", 4, 4))
	assert.Equal(t, standing(ErrMoved, 4), expect("/n", 3, 4))
	assert.Equal(t, standing(ErrMoved, 4), expect("/n", 5, 4))
}

// at is a time within the sample permit.
var at = time.UnixMilli(sampleAsk.Deadline - 1)
