package fencing

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// R77, R79: a task's revision is stored with each control, and a stopped one stays stopped.
func TestControlTaskStores(t *testing.T) {
	spy := newSpy()
	f := fenceOf(spy)
	task, err := f.StartTask(t.Context(), "x", "A")
	require.NoError(t, err)
	assert.Equal(t, taskOf(1, TaskRunning, "A"), task)
	for i, c := range []Control{{ActionPause, 1, ""}, {ActionResume, 2, "B"}, {ActionStop, 3, ""}} {
		r, err := f.ControlTask(t.Context(), "x", c)
		require.NoError(t, err)
		assert.Equal(t, contract.Receipt{Result: contract.ResultApplied, Before: int64(i + 1), After: int64(i + 2)}, r)
	}
	task, err = space.Task(t.Context(), spy, "x")
	require.NoError(t, err)
	assert.Equal(t, taskOf(4, TaskStopped, "A", "B"), task)
	again, err := f.StartTask(t.Context(), "x", "A")
	require.NoError(t, err)
	assert.Equal(t, task, again)
}

// R14, R83, R84: a refused control makes no task, changes none and tells no receipt.
func TestControlTaskRefusedWritesNothing(t *testing.T) {
	spy := newSpy()
	f := fenceOf(spy)
	_, err := f.ControlTask(t.Context(), "x", Control{ActionStop, 1, "B"})
	require.ErrorIs(t, err, ErrNotStarted)
	for _, id := range []string{"", strings.Repeat("x", contract.MaxMetaText+1), "x\ny"} {
		_, err = f.StartTask(t.Context(), id, "A")
		require.ErrorIs(t, err, contract.ErrInvalid)
		_, err = f.ControlTask(t.Context(), id, Control{ActionStop, 1, "A"})
		require.ErrorIs(t, err, contract.ErrInvalid)
	}
	_, err = f.StartTask(t.Context(), "x", "")
	require.ErrorIs(t, err, contract.ErrInvalid)
	task, err := space.Task(t.Context(), spy, "x")
	require.NoError(t, err)
	assert.Zero(t, task)
	assert.Empty(t, spy.wrote())

	_, err = f.StartTask(t.Context(), "x", "A")
	require.NoError(t, err)
	spy.calls = nil
	for _, expected := range []int64{-1, 0, 2} {
		r, err := f.ControlTask(t.Context(), "x", Control{ActionStop, expected, "B"})
		require.Error(t, err)
		assert.Zero(t, r)
	}
	assert.Empty(t, spy.wrote())
}

// R77: of two controls that expect one revision, one is applied.
func TestControlTaskRaces(t *testing.T) {
	spy := newSpy()
	f := fenceOf(spy)
	_, err := f.StartTask(t.Context(), "x", "A")
	require.NoError(t, err)
	spy.before = func(call string) error {
		if call == "swap task/x" {
			spy.before = nil
			_, err := f.ControlTask(t.Context(), "x", Control{ActionStop, 1, "B"})
			return err
		}
		return nil
	}
	r, err := f.ControlTask(t.Context(), "x", Control{ActionPause, 1, "C"})
	require.Equal(t, standing(ErrTerminal, 2), err)
	assert.Zero(t, r)
	task, err := space.Task(t.Context(), spy, "x")
	require.NoError(t, err)
	assert.Equal(t, taskOf(2, TaskStopped, "A", "B"), task)
}
