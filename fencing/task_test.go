package fencing

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// taskOf is a task that was started and controlled with these authorizations, in this order.
func taskOf(revision int64, state TaskState, authorizations ...string) Task {
	t := Task{Revision: revision, State: state}
	for _, a := range authorizations {
		t = t.authorized(a)
	}
	return t
}

func (t Task) describe() string {
	if t.Revision == 0 {
		return "not started"
	}
	return fmt.Sprintf("%d %s, %s, %d used", t.Revision, t.State, t.Authorization, len(t.Used))
}

// The tasks that there are, each in its shortest way.
var tasks = []Task{
	{},
	taskOf(1, TaskRunning, "A"),
	taskOf(2, TaskPaused, "A", "B"),
	taskOf(3, TaskRunning, "A", "B", "C"),
	taskOf(3, TaskStopped, "A", "B"),
	taskOf(math.MaxInt64, TaskPaused, "A"),
}

var actions = []Action{ActionPause, ActionResume, ActionStop}

// R77, R79, R82, R83: every decision about a task, for people to read.
func TestTaskTable(t *testing.T) {
	var b table
	b.row("# task", "request", "authorization", "expects", "=> task", "answer")
	row := func(task Task, name, authorization, expects string, after Task, said string) {
		becomes := "unchanged"
		if !assert.ObjectsAreEqual(task, after) {
			becomes = after.describe()
		}
		b.row(task.describe(), name, authorization, expects, becomes, said)
	}
	for _, task := range tasks {
		b.row()
		for _, authorization := range []string{"A", "new", ""} {
			after, err := task.Start(authorization)
			row(task, "START", nameless(authorization), "-", after, answer(err))
		}
		for _, action := range actions {
			for _, authorization := range []string{"A", task.Authorization, "new", ""} {
				control(task, action, authorization, "this", max(task.Revision, 1), row)
			}
			control(task, action, "new", "another", task.Revision/2+5, row)
			control(task, action, "new", "none", 0, row)
		}
	}
	b.rows = slices.Compact(b.rows)
	b.compare(t, "task", "Task.Start and Control. \"none\" is an expected revision of 0.")
}

func control(task Task, action Action, authorization, expects string, expected int64, row func(Task, string, string, string, Task, string)) {
	if authorization == "" && task.Authorization == "" {
		return // twice the same
	}
	after, r, err := task.Control(Control{Action: action, ExpectedRevision: expected, Authorization: authorization})
	row(task, string(action), nameless(authorization), expects, after, told(r, err))
}

func nameless(authorization string) string {
	if authorization == "" {
		return "none"
	}
	return authorization
}

// remembered is a task, and what an onlooker remembers of it.
type remembered struct {
	Task
	used       string // authorizations
	wasStopped bool
}

func (r remembered) key() string { return fmt.Sprintf("%+v", r) }

// everyControl calls fn with every control of every task that depth requests can make.
func everyControl(depth int, fn func(before remembered, c Control, after Task, r contract.Receipt, err error)) {
	seen := map[string]bool{}
	reached := []remembered{{}, {Task: taskOf(1, TaskRunning, "A"), used: "A"}}
	for range depth {
		var next []remembered
		for _, before := range reached {
			for _, c := range controlsOf(before.Revision) {
				after, r, err := before.Control(c)
				fn(before, c, after, r, err)
				now := remembered{after, before.used + c.Authorization, before.wasStopped || c.Action == ActionStop}
				if err == nil && !seen[now.key()] {
					seen[now.key()] = true
					next = append(next, now)
				}
			}
		}
		reached = next
	}
}

// controlsOf are the controls that make a difference in a revision.
func controlsOf(revision int64) []Control {
	var all []Control
	for _, action := range actions {
		for _, expected := range []int64{0, revision - 1, revision, revision + 1} {
			for _, authorization := range []string{"", "A", "B", "C"} {
				all = append(all, Control{action, expected, authorization})
			}
		}
	}
	return all
}

// R77, R79, R81, R82: what holds of every task that controls can make, whatever the order.
func TestEveryTask(t *testing.T) {
	steps := 0
	everyControl(5, func(before remembered, c Control, after Task, r contract.Receipt, err error) {
		steps++
		about := []any{"%s: %+v", before.describe(), c}
		fresh := c.Authorization != "" && !strings.Contains(before.used, c.Authorization)
		current := before.Revision > 0 && c.ExpectedRevision == before.Revision
		allowed := c.Action != ActionResume || before.State == TaskPaused && fresh
		require.Equal(t, current && allowed && !before.wasStopped, err == nil, about...)
		if err != nil {
			assert.Equal(t, before.Task, after, about...)
			assert.Zero(t, r, about...)
			requireRefusal(t, err, before.Revision, about...)
			return
		}
		require.True(t, after.sound(), about...)
		assert.Equal(t, before.Revision+1, after.Revision, about...)
		assert.Equal(t, map[Action]TaskState{ActionPause: TaskPaused, ActionResume: TaskRunning, ActionStop: TaskStopped}[c.Action],
			after.State, about...)
		assert.Equal(t, contract.Receipt{Result: contract.ResultApplied, Before: before.Revision, After: after.Revision}, r, about...)
		require.NoError(t, r.Err(), about...)
	})
	assert.Greater(t, steps, 1000)
}

// The codes of refusals, and which refusal comes first.
func TestControlRefuses(t *testing.T) {
	running, paused, stopped := tasks[1], tasks[2], tasks[4]
	for name, c := range map[string]struct {
		task Task
		c    Control
		want error
		code contract.FailureCode
	}{
		"R84 no revision":                      {running, Control{ActionStop, 0, "B"}, contract.ErrInvalid, contract.InvalidArgument},
		"R84 no revision, of no task":          {Task{}, Control{ActionStop, 0, "B"}, contract.ErrInvalid, contract.InvalidArgument},
		"R84 a negative revision":              {running, Control{ActionStop, -1, "B"}, contract.ErrInvalid, contract.InvalidArgument},
		"another action":                       {running, Control{"CANCEL", 1, "B"}, contract.ErrInvalid, contract.InvalidArgument},
		"no action":                            {running, Control{"", 1, "B"}, contract.ErrInvalid, contract.InvalidArgument},
		"an authorization of two lines":        {running, Control{ActionStop, 1, "B\nC"}, contract.ErrInvalid, contract.InvalidArgument},
		"R14 an unknown task":                  {Task{}, Control{ActionStop, 1, "B"}, ErrNotStarted, contract.NotFound},
		"R83 an older revision":                {paused, Control{ActionPause, 1, "C"}, ErrMoved, contract.Aborted},
		"R83 a newer revision":                 {paused, Control{ActionResume, 3, "C"}, ErrMoved, contract.Aborted},
		"R79 PAUSE after STOP":                 {stopped, Control{ActionPause, 3, "C"}, ErrTerminal, contract.FailedPrecondition},
		"R79 RESUME after STOP":                {stopped, Control{ActionResume, 3, "C"}, ErrTerminal, contract.FailedPrecondition},
		"R79 an older RESUME after STOP":       {stopped, Control{ActionResume, 2, "C"}, ErrTerminal, contract.FailedPrecondition},
		"A23 another STOP":                     {stopped, Control{ActionStop, 3, "C"}, ErrAlreadyStopped, contract.AlreadyExists},
		"A23 another, older STOP":              {stopped, Control{ActionStop, 1, "C"}, ErrAlreadyStopped, contract.AlreadyExists},
		"R82 RESUME without authorization":     {paused, Control{ActionResume, 2, ""}, ErrUnauthorized, contract.PermissionDenied},
		"R82 RESUME with that of the start":    {paused, Control{ActionResume, 2, "A"}, ErrUnauthorized, contract.PermissionDenied},
		"R82 RESUME with that of the pause":    {paused, Control{ActionResume, 2, "B"}, ErrUnauthorized, contract.PermissionDenied},
		"R82 an older one without":             {paused, Control{ActionResume, 1, "B"}, ErrUnauthorized, contract.PermissionDenied},
		"RESUME of what runs":                  {running, Control{ActionResume, 1, "B"}, ErrNotPaused, contract.FailedPrecondition},
		"R77 no revision beyond the last one":  {tasks[5], Control{ActionPause, math.MaxInt64, "B"}, ErrExhausted, contract.ResourceExhausted},
		"R77 nor for a resume, which is newer": {tasks[5], Control{ActionResume, math.MaxInt64, "B"}, ErrExhausted, contract.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			after, r, err := c.task.Control(c.c)
			require.ErrorIs(t, err, c.want)
			code, _ := contract.CodeOf(err)
			assert.Equal(t, c.code, code)
			requireRefusal(t, err, c.task.Revision)
			assert.Equal(t, c.task, after)
			assert.Zero(t, r)
		})
	}
}

// R81, R82: a new authorization is one that the task never had, and not only another than the last one.
func TestAuthorizationsAreNotForgotten(t *testing.T) {
	task, err := Task{}.Start("A")
	require.NoError(t, err)
	do := func(action Action, authorization string) error {
		after, _, err := task.Control(Control{action, task.Revision, authorization})
		task = after
		return err
	}
	require.NoError(t, do(ActionPause, ""), "a pause needs none")
	assert.Equal(t, "A", task.Authorization)
	require.NoError(t, do(ActionResume, "B"))
	require.NoError(t, do(ActionPause, "C"))
	require.NoError(t, do(ActionPause, "A"), "and may have an old one")
	for _, old := range []string{"A", "B", "C"} {
		require.ErrorIs(t, do(ActionResume, old), ErrUnauthorized, old)
	}
	require.NoError(t, do(ActionResume, "D"))
	assert.Equal(t, taskOf(6, TaskRunning, "A", "B", "C", "D"), task)
}

// Two decisions about one task share nothing.
func TestDecisionsShareNothing(t *testing.T) {
	for n := range int64(8) {
		task := taskOf(n+1, TaskRunning, strings.Split("ABCDEFGH", "")[:n+1]...)
		one, _, err := task.Control(Control{ActionPause, n + 1, "1"})
		require.NoError(t, err)
		other, _, err := task.Control(Control{ActionPause, n + 1, "2"})
		require.NoError(t, err)
		assert.True(t, one.isNew("2"))
		assert.True(t, other.isNew("1"))
	}
}

// R82: when no more authorizations can be remembered, none is new; but a task can always be paused and stopped.
func TestTooManyAuthorizations(t *testing.T) {
	task := taskOf(1, TaskRunning, "A")
	for i := len(task.Used); i < maxAuthorizations; i++ {
		task = task.authorized(fmt.Sprint(i))
	}
	paused, _, err := task.Control(Control{ActionPause, 1, "P"})
	require.NoError(t, err)
	assert.Len(t, paused.Used, maxAuthorizations)
	for _, a := range []string{"P", "Q"} {
		_, _, err = paused.Control(Control{ActionResume, 2, a})
		require.ErrorIs(t, err, ErrExhausted)
		requireRefusal(t, err, 2)
	}
	assert.NotContains(t, answer(err), "number")
	_, _, err = paused.Control(Control{ActionStop, 2, "Q"})
	require.NoError(t, err)
	data, err := json.Marshal(paused)
	require.NoError(t, err)
	assert.Less(t, len(data), 64<<10, "store.MaxValue")
}

// R79: a task is started once, with an authorization, and a repeated start never starts what was stopped.
func TestStartTask(t *testing.T) {
	_, err := Task{}.Start("")
	require.ErrorIs(t, err, contract.ErrInvalid)
	for _, task := range tasks[1:] {
		same, err := task.Start("A")
		require.NoError(t, err)
		assert.Equal(t, task, same)
		for _, other := range []string{"B", "new"} {
			same, err = task.Start(other)
			require.ErrorIs(t, err, contract.ErrSecondOperation)
			requireRefusal(t, err, task.Revision)
			assert.Equal(t, task, same)
		}
	}
}
