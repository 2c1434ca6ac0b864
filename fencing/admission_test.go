package fencing

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// admissionStep is a request to an Admission.
type admissionStep struct {
	name     string
	decide   func(Admission) (Admission, contract.Receipt, error)
	set      bool  // a Set, which expects a generation
	expected int64 // of a Set
	opens    bool
	active   int64
	stops    bool
}

func start() admissionStep {
	return admissionStep{name: "start", decide: func(a Admission) (Admission, contract.Receipt, error) {
		started, err := a.Start()
		return started, contract.Receipt{}, err
	}}
}

func set(barrier string, open bool, expected, active int64) admissionStep {
	r := AdmissionRequest{BarrierID: barrier, ExpectedGeneration: expected, Open: open, Epoch: "e"}
	name := "open"
	if !open {
		name = fmt.Sprintf("close with %d active", active)
	}
	return admissionStep{
		name: name, set: true, expected: expected, opens: open, active: active,
		decide: func(a Admission) (Admission, contract.Receipt, error) { return a.Set(r, active) },
	}
}

func drain(barrier string, active int64) admissionStep {
	return admissionStep{
		name: fmt.Sprintf("drain with %d active", active), active: active,
		decide: func(a Admission) (Admission, contract.Receipt, error) { return a.Drain(barrier, active) },
	}
}

func stop(barrier string, active int64) admissionStep {
	return admissionStep{
		name: fmt.Sprintf("stop with %d active", active), active: active, stops: true,
		decide: func(a Admission) (Admission, contract.Receipt, error) { return a.Stop(barrier, "e", active) },
	}
}

// The admissions that there are, each in its shortest way.
var admissions = []Admission{
	{},
	{Generation: 1},
	{Generation: 2, Open: true, Barrier: "b1", Epoch: "e"},
	{Generation: 3, Barrier: "b2", Epoch: "e"},
	{Generation: 3, Barrier: "b2", Epoch: "e", Drained: true},
	{Generation: 4, Stopped: true, Barrier: "b3", Epoch: "e"},
	{Generation: 4, Stopped: true, Barrier: "b3", Epoch: "e", Drained: true},
	{Generation: math.MaxInt64, Open: true, Barrier: "b4", Epoch: "e"},
}

func (a Admission) describe() string {
	if a.Generation == 0 {
		return "not started"
	}
	words := []string{fmt.Sprint(a.Generation), "closed"}
	if a.Open {
		words[1] = "open"
	}
	if a.Barrier != "" {
		words = append(words, a.Barrier)
	}
	if a.Drained {
		words = append(words, "drained")
	}
	if a.Stopped {
		words = append(words, "stopped")
	}
	return strings.Join(words, " ")
}

// told is what a decision answers: its receipt, or its refusal.
func told(r contract.Receipt, err error) string {
	if err != nil || r.Result == "" {
		return answer(err)
	}
	text := fmt.Sprintf("%s %d -> %d", r.Result, r.Before, r.After)
	if r.Barrier != nil {
		text += fmt.Sprintf(", %s with %d active", r.Barrier.ID, r.Barrier.ActiveCalls)
	}
	return text
}

// R43, R45, R47, R48: every decision about admission, for people to read.
func TestAdmissionTable(t *testing.T) {
	var b table
	b.row("# admission", "request", "barrier", "expects", "=> admission", "answer")
	row := func(a Admission, barrier, expects string, s admissionStep) {
		after, r, err := s.decide(a)
		becomes := "unchanged"
		if after != a {
			becomes = after.describe()
		}
		b.row(a.describe(), s.name, barrier, expects, becomes, told(r, err))
	}
	for _, a := range admissions {
		b.row()
		row(a, "-", "-", start())
		for _, open := range []bool{true, false} {
			row(a, "new", "this", set("new", open, max(a.Generation, 1), 0))
			row(a, "new", "another", set("new", open, a.Generation/2+5, 0))
			row(a, "new", "none", set("new", open, 0, 0))
			if a.Barrier != "" {
				row(a, "same", "this", set(a.Barrier, open, a.Generation, 0))
				row(a, "same", "another", set(a.Barrier, open, a.Generation/2+5, 0))
			}
		}
		row(a, "new", "this", set("new", false, max(a.Generation, 1), 2))
		if a.Barrier != "" {
			row(a, "same", "-", drain(a.Barrier, 0))
			row(a, "same", "-", drain(a.Barrier, 2))
		}
		row(a, "other", "-", drain("other", 0))
		row(a, "new", "-", stop("new", 0))
		row(a, "new", "-", stop("new", 2))
	}
	b.compare(t, "admission", "Admission.Start, Set, Drain and Stop. \"none\" is an expected generation of 0.")
}

// admissionSteps are the requests that make a difference in a generation.
func admissionSteps(generation int64) []admissionStep {
	steps := []admissionStep{start()}
	for _, barrier := range []string{"a", "b"} {
		for active := range int64(2) {
			for _, expected := range []int64{0, generation - 1, generation, generation + 1} {
				steps = append(steps, set(barrier, true, expected, active), set(barrier, false, expected, active))
			}
			steps = append(steps, drain(barrier, active), stop(barrier, active))
		}
	}
	return steps
}

// lived is an admission, and what an onlooker remembers of it.
type lived struct {
	Admission
	started, wasStopped bool
}

// everyAdmission calls fn with every step from every admission that depth steps can reach.
func everyAdmission(depth int, fn func(before lived, s admissionStep, after Admission, r contract.Receipt, err error)) {
	reached := []lived{{}}
	seen := map[lived]bool{{}: true}
	for range depth {
		var next []lived
		for _, before := range reached {
			for _, s := range admissionSteps(before.Generation) {
				after, r, err := s.decide(before.Admission)
				fn(before, s, after, r, err)
				now := lived{after, true, before.wasStopped || s.stops}
				if err == nil && !seen[now] {
					seen[now] = true
					next = append(next, now)
				}
			}
		}
		reached = next
	}
}

// R43, R48, R92, R49: what holds of every admission that requests can make, whatever the order.
func TestEveryAdmission(t *testing.T) {
	steps := 0
	everyAdmission(5, func(before lived, s admissionStep, after Admission, r contract.Receipt, err error) {
		steps++
		about := []any{"%s: %s, expects %d", before.describe(), s.name, s.expected}
		if err != nil {
			assert.Equal(t, before.Admission, after, about...)
			assert.Zero(t, r, about...)
			requireRefusal(t, err, before.Generation, about...)
			return
		}
		require.True(t, after.sound(), about...)
		require.NotZero(t, after.Generation, about...)
		assert.Equal(t, after.Open && !after.Stopped, after.Admit() == nil, about...)

		switch moved := after.Generation - before.Generation; {
		case s.set:
			assert.EqualValues(t, 1, moved, about...)
			assert.Equal(t, before.Generation, s.expected, about...)
			assert.Equal(t, s.opens, after.Open, about...)
			assert.True(t, before.started, about...)
		case s.stops && !before.wasStopped:
			assert.EqualValues(t, 1, moved, about...)
		case s.name == "start" && !before.started:
			assert.Equal(t, Admission{Generation: 1}, after, about...)
		default:
			assert.Zero(t, moved, about...)
		}
		if before.wasStopped || s.stops {
			assert.ErrorIs(t, after.Admit(), ErrTerminal, about...)
		}
		if r.Result == "" {
			return
		}
		require.NoError(t, r.Validate(), about...)
		assert.Equal(t, after.Generation, r.After, about...)
		if after.Open {
			assert.True(t, r.Applied(), about...)
			return
		}
		assert.Equal(t, s.active == 0, r.Applied(), about...)
		assert.Equal(t, r.Applied(), after.Drained, about...)
		assert.Equal(t, s.active, r.Barrier.ActiveCalls, about...)
	})
	assert.Greater(t, steps, 1000)
}

// requireRefusal requires that err says that nothing happened and, unless it is of the request's own making or tells nothing to who
// may not know, the number that stands.
func requireRefusal(t *testing.T, err error, current int64, about ...any) {
	t.Helper()
	f, ok := contract.FailureOf(err)
	require.True(t, ok, about...)
	assert.True(t, f.KnownNoEffect(), about...)
	if !slices.Contains([]contract.FailureCode{contract.InvalidArgument, contract.NotFound, contract.PermissionDenied}, f.Code) {
		assert.Equal(t, current, f.Current, about...)
	}
}

// R42, R43: a change keeps its barrier and the generation that it expected, and its receipt tells both generations.
func TestSetAdmission(t *testing.T) {
	a, err := Admission{}.Start()
	require.NoError(t, err)
	a, r, err := a.Set(AdmissionRequest{BarrierID: "b1", ExpectedGeneration: 1, Open: true, Epoch: "e1"}, 7)
	require.NoError(t, err)
	assert.Equal(t, Admission{Generation: 2, Open: true, Barrier: "b1", Epoch: "e1"}, a)
	assert.Equal(t, contract.Receipt{Result: contract.ResultApplied, Before: 1, After: 2, Ref: "b1"}, r)

	a, r, err = a.Set(AdmissionRequest{BarrierID: "b2", ExpectedGeneration: 2, Epoch: "e2"}, 0)
	require.NoError(t, err)
	assert.Equal(t, Admission{Generation: 3, Barrier: "b2", Drained: true, Epoch: "e2"}, a)
	assert.Equal(t, &contract.Barrier{ID: "b2", Epoch: "e2"}, r.Barrier)
	assert.EqualValues(t, 2, r.Before)
	assert.EqualValues(t, 3, r.After)
	assert.True(t, r.Applied())
}

// R45, R46, R47: what is not the next change of the standing generation is refused, and moves nothing.
func TestSetAdmissionRefuses(t *testing.T) {
	open := Admission{Generation: 7, Open: true, Barrier: "b6", Epoch: "e"}
	for name, c := range map[string]struct {
		a    Admission
		r    AdmissionRequest
		want error
	}{
		"R45 an older generation":                 {open, AdmissionRequest{"b7", 6, false, "e"}, ErrMoved},
		"R45 a newer generation":                  {open, AdmissionRequest{"b7", 8, false, "e"}, ErrMoved},
		"R46 the same barrier, other generation":  {open, AdmissionRequest{"b6", 6, true, "e"}, contract.ErrSecondOperation},
		"R46 the same barrier, other target":      {open, AdmissionRequest{"b6", 7, false, "e"}, contract.ErrSecondOperation},
		"R47 no generation":                       {open, AdmissionRequest{"b7", 0, false, "e"}, contract.ErrInvalid},
		"R47 no generation, for the first":        {Admission{}, AdmissionRequest{"b7", 0, true, "e"}, contract.ErrInvalid},
		"R47 a negative generation":               {open, AdmissionRequest{"b7", -7, false, "e"}, contract.ErrInvalid},
		"R49 the first, without a start":          {Admission{}, AdmissionRequest{"b7", 1, true, "e"}, ErrNotStarted},
		"R92 after a stop":                        {Admission{Generation: 7, Stopped: true}, AdmissionRequest{"b7", 7, true, "e"}, ErrTerminal},
		"R92 an opening that was on its way":      {Admission{Generation: 7, Stopped: true}, AdmissionRequest{"b7", 6, true, "e"}, ErrTerminal},
		"R43 beyond the largest generation":       {Admission{Generation: math.MaxInt64}, AdmissionRequest{"b7", math.MaxInt64, true, "e"}, ErrExhausted},
		"A9 evidence without a barrier":           {open, AdmissionRequest{"", 7, false, "e"}, contract.ErrInvalid},
		"A9 evidence with a barrier cut by store": {open, AdmissionRequest{strings.Repeat("b", contract.MaxMetaText+1), 7, false, "e"}, contract.ErrInvalid},
		"A9 evidence without an epoch":            {open, AdmissionRequest{"b7", 7, false, ""}, contract.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			after, r, err := c.a.Set(c.r, 0)
			require.ErrorIs(t, err, c.want)
			requireRefusal(t, err, c.a.Generation)
			assert.Equal(t, c.a, after)
			assert.Zero(t, r)
		})
	}
	_, _, err := open.Set(AdmissionRequest{"b7", 7, false, "e"}, -1)
	require.ErrorIs(t, err, contract.ErrInvalid)
}

// R48, R20: a close is accepted while calls are active, takes no work already, and is applied by evidence of its own barrier.
func TestDrainAdmission(t *testing.T) {
	open := Admission{Generation: 4, Open: true, Barrier: "b1", Epoch: "e1"}
	a, r, err := open.Set(AdmissionRequest{"b2", 4, false, "e2"}, 3)
	require.NoError(t, err)
	assert.Equal(t, contract.ResultAccepted, r.Result)
	assert.EqualValues(t, 3, r.Barrier.ActiveCalls)
	require.ErrorIs(t, r.Err(), contract.ErrOutcomeUnknown)
	require.ErrorIs(t, a.Admit(), ErrClosed)
	_, err = a.Reached("b2")
	require.ErrorIs(t, err, ErrNotDrained)

	_, _, err = a.Drain("b2", 1)
	require.ErrorIs(t, err, ErrNotDrained)
	_, _, err = a.Drain("b1", 0)
	require.ErrorIs(t, err, ErrMoved)
	_, _, err = a.Drain("", 0)
	require.ErrorIs(t, err, contract.ErrInvalid)

	for range 2 {
		var drained contract.Receipt
		a, drained, err = a.Drain("b2", 0)
		require.NoError(t, err)
		advanced, err := r.Advance(by(drained, "the runner"))
		require.NoError(t, err)
		require.NoError(t, advanced.Err())
		assert.Equal(t, &contract.Barrier{ID: "b2", Epoch: "e2"}, advanced.Barrier)
		assert.EqualValues(t, 4, advanced.Before)
		assert.EqualValues(t, 5, advanced.After)
		reached, err := a.Reached("b2")
		require.NoError(t, err)
		assert.Equal(t, drained, reached)
	}

	reopened, _, err := a.Set(AdmissionRequest{"b3", 5, true, "e2"}, 0)
	require.NoError(t, err)
	_, _, err = reopened.Drain("b2", 0)
	require.ErrorIs(t, err, ErrMoved, "an opening took its place")
	_, _, err = reopened.Drain("b3", 0)
	require.ErrorIs(t, err, ErrMoved, "an opening is no barrier to reach")
	_, err = reopened.Reached("b2")
	require.ErrorIs(t, err, ErrNotDrained)
}

func by(r contract.Receipt, who string) contract.Receipt {
	r.By = who
	return r
}

// R91, R92, A20: a stop closes for ever with a generation of its own, and every delivery of it tells what is active.
func TestStopAdmission(t *testing.T) {
	open := Admission{Generation: 4, Open: true, Barrier: "b1", Epoch: "e1"}
	a, r, err := open.Stop("task/7", "e2", 2)
	require.NoError(t, err)
	assert.Equal(t, Admission{Generation: 5, Stopped: true, Barrier: "task/7", Epoch: "e2"}, a)
	assert.Equal(t, "ACCEPTED 4 -> 5, task/7 with 2 active", told(r, nil))

	again, r, err := a.Stop("task/7", "e3", 1)
	require.NoError(t, err)
	assert.Equal(t, a, again, "it is not moved again")
	assert.Equal(t, "ACCEPTED 5 -> 5, task/7 with 1 active", told(r, nil))

	drained, r, err := again.Stop("task/7", "e3", 0)
	require.NoError(t, err)
	assert.True(t, drained.Drained)
	assert.True(t, r.Applied())
	assert.Equal(t, &contract.Barrier{ID: "task/7", Epoch: "e3"}, r.Barrier)

	// The close that stands says more than an earlier count.
	undone, _, err := drained.Stop("task/7", "e3", 1)
	require.NoError(t, err)
	assert.False(t, undone.Drained)

	// A dispatcher may still close, to have a barrier of its own; that takes nothing back.
	closed, r, err := drained.Set(AdmissionRequest{"b9", 5, false, "e3"}, 0)
	require.NoError(t, err)
	assert.True(t, r.Applied())
	assert.Equal(t, Admission{Generation: 6, Stopped: true, Barrier: "b9", Drained: true, Epoch: "e3"}, closed)

	// Nothing that is missing holds a stop up, but one without a name is none.
	never, r, err := Admission{}.Stop("task/7", "e", 0)
	require.NoError(t, err)
	assert.Equal(t, "APPLIED 0 -> 1, task/7 with 0 active", told(r, nil))
	require.ErrorIs(t, never.Admit(), ErrTerminal)
	started, err := never.Start()
	require.NoError(t, err)
	assert.Equal(t, never, started)
	for _, bad := range []func() (Admission, contract.Receipt, error){
		func() (Admission, contract.Receipt, error) { return open.Stop("", "e", 0) },
		func() (Admission, contract.Receipt, error) { return open.Stop("task/7", "", 0) },
		func() (Admission, contract.Receipt, error) { return open.Stop("task/7", "e", -1) },
	} {
		_, _, err := bad()
		require.ErrorIs(t, err, contract.ErrInvalid)
	}
}

// R57, R92: closed is refused, and what is stopped is closed as well.
func TestAdmit(t *testing.T) {
	require.NoError(t, Admission{Generation: 2, Open: true}.Admit())
	for _, a := range []Admission{{}, {Generation: 3}, {Generation: 3, Stopped: true}, {Generation: 3, Open: true, Stopped: true}} {
		err := a.Admit()
		require.ErrorIs(t, err, ErrClosed)
		assert.Equal(t, a.Stopped, errors.Is(err, ErrTerminal))
		code, _ := contract.CodeOf(err)
		assert.Equal(t, contract.FailedPrecondition, code)
		requireRefusal(t, err, a.Generation)
	}
}
