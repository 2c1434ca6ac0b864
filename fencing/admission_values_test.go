package fencing

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// Admissions and tasks are kept as the other states are.
func init() {
	everyKept = append(everyKept,
		keptAs("admission/agent", Admission{3, false, true, "b2", true, "e1"},
			`{"generation":3,"open":false,"stopped":true,"barrier":"b2","drained":true,"epoch":"e1"}`,
			func(ctx context.Context, spy *spyValues) error {
				_, err := fenceOf(spy).StopAdmission(ctx, "agent", "b3", "e1", 0)
				return err
			}),
		keptAs("task/x1", Task{2, TaskPaused, "A", []string{shortDigest("A")}},
			`{"revision":2,"state":"PAUSED","authorization":"A","used":["odDb0j3BzkgKqrfsjSi2zw"]}`,
			func(ctx context.Context, spy *spyValues) error {
				_, err := fenceOf(spy).ControlTask(ctx, "x1", Control{ActionStop, 2, "B"})
				return err
			}))
}

// opened is an agent's admission in values, open in generation 2.
func opened(t *testing.T) (*spyValues, Fence) {
	t.Helper()
	spy := newSpy()
	f := fenceOf(spy)
	_, err := f.StartAdmission(t.Context(), "agent")
	require.NoError(t, err)
	_, err = f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b1", 1, true, "e"}, 0)
	require.NoError(t, err)
	spy.calls = nil
	return spy, f
}

func admissionOf(t *testing.T, spy *spyValues) Admission {
	t.Helper()
	a, err := space.Admission(t.Context(), spy, "agent")
	require.NoError(t, err)
	return a
}

// R49: admission begins by an explicit start, once, and closed. What nobody started can neither be opened nor worked with.
func TestStartAdmission(t *testing.T) {
	spy := newSpy()
	f := fenceOf(spy)
	for _, expected := range []int64{0, 1} {
		_, err := f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b1", expected, true, "e"}, 0)
		require.Error(t, err)
	}
	_, err := f.DrainAdmission(t.Context(), "agent", "b1", 0)
	require.ErrorIs(t, err, ErrNotStarted)
	assert.Empty(t, spy.wrote())
	_, err = space.Hold(t.Context(), spy, AdmissionOpen("agent"))
	require.ErrorIs(t, err, ErrClosed)
	_, err = space.Hold(t.Context(), spy, AdmissionDrained("agent", ""))
	require.ErrorIs(t, err, ErrNotDrained)
	assert.Zero(t, admissionOf(t, spy))

	for range 2 {
		a, err := f.StartAdmission(t.Context(), "agent")
		require.NoError(t, err)
		assert.Equal(t, Admission{Generation: 1}, a)
	}
	spy, f = opened(t)
	again, err := f.StartAdmission(t.Context(), "agent")
	require.NoError(t, err)
	assert.Equal(t, Admission{Generation: 2, Open: true, Barrier: "b1", Epoch: "e"}, again, "a process that starts again lowers nothing")
	assert.Equal(t, again, admissionOf(t, spy))
}

// R42, R43, R48: a close is stored with its barrier, and again when it is drained.
func TestSetAdmissionStores(t *testing.T) {
	spy, f := opened(t)
	r, err := f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b2", 2, false, "e"}, 1)
	require.NoError(t, err)
	assert.Equal(t, "ACCEPTED 2 -> 3, b2 with 1 active", told(r, nil))
	assert.Equal(t, Admission{Generation: 3, Barrier: "b2", Epoch: "e"}, admissionOf(t, spy))
	r, err = f.DrainAdmission(t.Context(), "agent", "b2", 0)
	require.NoError(t, err)
	assert.Equal(t, "APPLIED 2 -> 3, b2 with 0 active", told(r, nil))
	assert.Equal(t, Admission{Generation: 3, Barrier: "b2", Drained: true, Epoch: "e"}, admissionOf(t, spy))
	assert.Equal(t, []string{"admission/agent", "admission/agent"}, spy.wrote())
}

// R45, R47: a refusal writes nothing and tells no receipt, also when somebody else was quicker.
func TestSetAdmissionRefusedWritesNothing(t *testing.T) {
	spy, f := opened(t)
	for _, expected := range []int64{-1, 0, 1, 3} {
		r, err := f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b2", expected, false, "e"}, 0)
		require.Error(t, err)
		assert.Zero(t, r)
	}
	for _, agent := range []string{"", strings.Repeat("a", contract.MaxMetaText+1), "a\nb"} {
		_, err := f.StopAdmission(t.Context(), agent, "b2", "e", 0)
		require.ErrorIs(t, err, contract.ErrInvalid)
	}
	assert.Empty(t, spy.wrote())

	spy.before = func(call string) error {
		if call == "swap admission/agent" {
			spy.before = nil
			_, err := f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b3", 2, false, "e"}, 0)
			return err
		}
		return nil
	}
	r, err := f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b2", 2, true, "e"}, 0)
	require.Equal(t, standing(ErrMoved, 3), err)
	assert.Zero(t, r, "of two that expected a generation, one moved it")
	assert.Equal(t, "b3", admissionOf(t, spy).Barrier)
}

// What the store did not do is not told as done, and a change holds no value that it then wants for itself.
func TestChangesSwapWithoutHolding(t *testing.T) {
	changes := map[string]func(Fence) (contract.Receipt, error){
		"admission/agent set": func(f Fence) (contract.Receipt, error) {
			return f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b2", 2, false, "e"}, 0)
		},
		"admission/agent stop": func(f Fence) (contract.Receipt, error) { return f.StopAdmission(t.Context(), "agent", "b2", "e", 0) },
		"task/x control": func(f Fence) (contract.Receipt, error) {
			return f.ControlTask(t.Context(), "x", Control{ActionPause, 1, ""})
		},
	}
	for what, change := range changes {
		name, _, _ := strings.Cut(what, " ")
		spy, f := opened(t)
		_, err := f.StartTask(t.Context(), "x", "A")
		require.NoError(t, err)
		spy.calls = nil
		before := spy.content(name)
		spy.before = func(call string) error {
			if strings.HasPrefix(call, "swap") {
				return errDown
			}
			return nil
		}
		r, err := change(f)
		require.ErrorIs(t, err, errDown, what)
		assert.Zero(t, r, what)
		assert.Equal(t, before, spy.content(name), what)

		spy.before, spy.calls = nil, nil
		r, err = change(f)
		require.NoError(t, err, what)
		assert.True(t, r.Applied(), what)
		assert.Equal(t, []string{"load " + name, "swap " + name}, spy.calls)
	}
}

// R57: new work is let in under a lock on open admission, and is refused once it is closed, with its number.
func TestAdmissionOpen(t *testing.T) {
	spy, f := opened(t)
	_, err := space.Hold(t.Context(), spy, AdmissionOpen("agent"))
	require.NoError(t, err)
	assert.Equal(t, []string{"hold admission/agent"}, spy.calls)
	_, err = space.Hold(t.Context(), spy, AdmissionOpen("another agent"))
	require.ErrorIs(t, err, ErrClosed)

	_, err = f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b2", 2, false, "e"}, 5)
	require.NoError(t, err)
	_, err = space.Hold(t.Context(), spy, AdmissionOpen("agent"))
	require.ErrorIs(t, err, ErrClosed)
	requireRefusal(t, err, 3)
	_, err = f.StopAdmission(t.Context(), "agent", "b3", "e", 5)
	require.NoError(t, err)
	_, err = space.Hold(t.Context(), spy, AdmissionOpen("agent"))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, err, ErrTerminal)
}

// R119: what depends on a barrier is refused until that very barrier is reached, and again once another has taken its place.
func TestAdmissionDrained(t *testing.T) {
	spy, f := opened(t)
	reached := func(barrier string) error {
		_, err := space.Hold(t.Context(), spy, AdmissionDrained("agent", barrier))
		return err
	}
	refused := func(barriers ...string) {
		t.Helper()
		for _, b := range append(barriers, "", "b9") {
			err := reached(b)
			require.ErrorIs(t, err, ErrNotDrained, b)
			requireRefusal(t, err, admissionOf(t, spy).Generation)
		}
	}
	refused("b1") // an opening
	_, err := f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b2", 2, false, "e"}, 1)
	require.NoError(t, err)
	refused("b1", "b2") // accepted is not applied
	_, err = f.DrainAdmission(t.Context(), "agent", "b2", 0)
	require.NoError(t, err)
	spy.calls = nil
	require.NoError(t, reached("b2"))
	assert.Equal(t, []string{"hold admission/agent"}, spy.calls, "it stays so until the transaction ends")
	refused("b1")
	_, err = f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b3", 3, true, "e"}, 0)
	require.NoError(t, err)
	refused("b1", "b2", "b3")
	_, err = f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b4", 4, false, "e"}, 0)
	require.NoError(t, err)
	require.NoError(t, reached("b4"))
	refused("b1", "b2", "b3")
}

// R92, A20: whatever request was on its way, and whatever process starts again, a stopped admission stays closed.
func TestStoppedAdmissionStaysClosed(t *testing.T) {
	spy, f := opened(t)
	_, err := f.StopAdmission(t.Context(), "agent", "task/7", "e", 0)
	require.NoError(t, err)
	for expected := range int64(6) {
		_, err := f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b9", expected, true, "e"}, 0)
		require.Error(t, err)
		if expected > 0 {
			require.ErrorIs(t, err, ErrTerminal)
			requireRefusal(t, err, 3)
		}
	}
	_, err = f.StartAdmission(t.Context(), "agent")
	require.NoError(t, err)
	assert.Equal(t, Admission{Generation: 3, Stopped: true, Barrier: "task/7", Drained: true, Epoch: "e"}, admissionOf(t, spy))
	_, err = NewGate(admissionOf(t, spy)).Enter("c1")
	require.ErrorIs(t, err, ErrTerminal)
}

// R49, R92: what no admission and no task can be is unreadable, and is not taken for one that is open or runs.
func TestUnsoundStatesAreRefused(t *testing.T) {
	for name, contents := range map[string][]string{
		"admission/agent": {
			`{"generation":3,"open":true,"stopped":true,"barrier":"b","drained":false,"epoch":"e"}`,
			`{"generation":3,"open":true,"stopped":false,"barrier":"b","drained":true,"epoch":"e"}`,
		},
		"task/x1": {
			`{"revision":2,"state":"GONE","authorization":"A","used":["a"]}`,
			`{"revision":2,"state":"","authorization":"A","used":["a"]}`,
			`{"revision":2,"state":"PAUSED","authorization":"A","used":[]}`,
		},
	} {
		for _, k := range everyKept {
			for _, content := range contents {
				if k.name == name {
					refusesUnreadable(t, k, content)
				}
			}
		}
	}
	spy := newSpy()
	spy.put("admission/agent", `{"generation":3,"open":true,"stopped":true,"barrier":"b","drained":false,"epoch":"e"}`)
	for _, check := range []Check{AdmissionOpen("agent"), AdmissionDrained("agent", "b")} {
		_, err := space.Hold(t.Context(), spy, check)
		require.ErrorIs(t, err, ErrUnreadable)
	}
	_, err := space.Admission(t.Context(), spy, "agent")
	require.ErrorIs(t, err, ErrUnreadable)
	spy.before = func(string) error { return errDown }
	_, err = space.Admission(t.Context(), spy, "agent")
	require.ErrorIs(t, err, errDown)
	_, err = space.Task(t.Context(), spy, "x")
	require.ErrorIs(t, err, errDown)
	_, err = space.Hold(t.Context(), spy, AdmissionOpen("agent"))
	require.ErrorIs(t, err, errDown)
}
