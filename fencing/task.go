package fencing

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// TaskState is the closed set of what a task that was started can be.
type TaskState string

// The three states.
const (
	TaskRunning TaskState = "RUNNING"
	TaskPaused  TaskState = "PAUSED"  // may be resumed, by a new authorization
	TaskStopped TaskState = "STOPPED" // for ever
)

// Action is the closed set of what is done to a task.
type Action string

// The three actions.
const (
	ActionPause  Action = "PAUSE"
	ActionResume Action = "RESUME"
	ActionStop   Action = "STOP"
)

// Task is the durable state of one execution's task, at the dispatcher's side the authoritative one (R93). Its zero value is a task
// that nobody started.
//
// Its methods are pure decisions: what it becomes, and the receipt. With an error nothing changes.
type Task struct {
	Revision      int64     `json:"revision"` // it only rises, by one with each control; 0: not started
	State         TaskState `json:"state"`
	Authorization string    `json:"authorization"` // of the last control that had one; at first of the start
	Used          []string  `json:"used"`          // short digests of all authorizations that there were
}

// Control asks to pause, resume or stop a task (ApplyTaskControl).
type Control struct {
	Action           Action
	ExpectedRevision int64 // the one that stands; one that is missing is an error, never "any" (R84)

	// Authorization names what authorizes the control: an id that is given out once, and not a secret. That it is genuine, and is
	// for this, is for the caller to find out before. RESUME needs a new one: one that the task was neither started nor controlled
	// with, whatever the control was and however long ago (R81, R82). The others may have any, or none.
	Authorization string
}

// maxAuthorizations is how many authorizations a task can tell from new ones.
const maxAuthorizations = 1000

// Start begins a task, running and in revision 1. To start a task again that was started with the same authorization changes nothing,
// whatever the task has become. The error is *[contract.InvalidError], or [contract.ErrSecondOperation] for another authorization.
func (t Task) Start(authorization string) (Task, error) {
	if err := contract.ValidateText("/authorization", authorization, contract.MaxMetaText); err != nil {
		return t, err
	}
	used := shortDigest(authorization)
	switch {
	case t.Revision == 0:
		return Task{Revision: 1, State: TaskRunning, Authorization: authorization, Used: []string{used}}, nil
	case t.Used[0] != used:
		return t, standing(contract.ErrSecondOperation, t.Revision)
	}
	return t, nil
}

// Control decides about a control. STOP is for ever; PAUSE can be taken back, by a new authorization. To pause what is paused is a
// change as well: a resume that was decided before it is stale then.
//
// The errors, in this order: *[contract.InvalidError] (R84); ErrNotStarted; after STOP ErrAlreadyStopped for another STOP and
// ErrTerminal for the rest (R79, A23); ErrUnauthorized for a RESUME without a new authorization (R82); ErrMoved (R83);
// ErrNotPaused for a RESUME of what runs; ErrExhausted for a RESUME after too many authorizations, which no PAUSE or STOP is
// refused for. All but the first two and ErrUnauthorized tell the current revision.
func (t Task) Control(c Control) (Task, contract.Receipt, error) {
	if err := t.permits(c); err != nil {
		return t, contract.Receipt{}, err
	}
	revision, err := next(t.Revision)
	if err != nil {
		return t, contract.Receipt{}, standing(ErrExhausted, t.Revision)
	}
	after := t.authorized(c.Authorization)
	after.Revision, after.State = revision, c.Action.state()
	return after, contract.Receipt{Result: contract.ResultApplied, Before: t.Revision, After: revision}, nil
}

func (t Task) permits(c Control) error {
	moved := expect("/expected_task_revision", c.ExpectedRevision, t.Revision)
	switch err := c.validate(); {
	case err != nil:
		return err
	case errors.Is(moved, contract.ErrInvalid):
		return moved
	case t.Revision == 0:
		return ErrNotStarted
	case t.State == TaskStopped && c.Action == ActionStop:
		return standing(ErrAlreadyStopped, t.Revision)
	case t.State == TaskStopped:
		return standing(ErrTerminal, t.Revision)
	case c.Action == ActionResume && !t.isNew(c.Authorization):
		return ErrUnauthorized
	case moved != nil:
		return moved
	case c.Action == ActionResume:
		return t.resumable()
	}
	return nil
}

func (t Task) resumable() error {
	switch {
	case t.State != TaskPaused:
		return standing(ErrNotPaused, t.Revision)
	case len(t.Used) >= maxAuthorizations:
		full := *ErrExhausted
		full.Message = "the task has had too many authorizations to tell a new one; nothing was done; it can still be stopped"
		return standing(&full, t.Revision)
	}
	return nil
}

func (t Task) isNew(authorization string) bool {
	return authorization != "" && !slices.Contains(t.Used, shortDigest(authorization))
}

// authorized is t with an authorization that is not new any more. Beyond the limit none is remembered, and none is new enough.
func (t Task) authorized(authorization string) Task {
	if authorization == "" {
		return t
	}
	if t.isNew(authorization) && len(t.Used) < maxAuthorizations {
		t.Used = append(slices.Clone(t.Used), shortDigest(authorization))
	}
	t.Authorization = authorization
	return t
}

// shortDigest is 128 bits of a digest: of two authorizations that collided, the second would be refused.
func shortDigest(authorization string) string {
	d := contract.NewContent("authorization").Text("id", authorization).Digest()
	return base64.RawURLEncoding.EncodeToString(d[:16])
}

// sound says whether t can be a task that was started.
func (t Task) sound() bool {
	return t.Revision > 0 && len(t.Used) > 0 && (t.State == TaskRunning || t.State == TaskPaused || t.State == TaskStopped)
}

func (c Control) validate() error {
	if c.Action.state() == "" {
		return &contract.InvalidError{Path: "/action", Problem: "must be PAUSE, RESUME or STOP"}
	}
	if c.Authorization == "" {
		return nil
	}
	return contract.ValidateText("/authorization", c.Authorization, contract.MaxMetaText)
}

// state is what the action makes of a task; empty for what is no action.
func (a Action) state() TaskState {
	switch a {
	case ActionPause:
		return TaskPaused
	case ActionResume:
		return TaskRunning
	case ActionStop:
		return TaskStopped
	}
	return ""
}

// StartTask begins the task of an execution: see [Task.Start].
func (f Fence) StartTask(ctx context.Context, executionID, authorization string) (Task, error) {
	if err := f.mayWrite("/execution_id", executionID, contract.MaxMetaText, epochIs|sessionIs); err != nil {
		return Task{}, err
	}
	_, t, err := change(ctx, f, taskName(executionID), func(t Task) (Task, error) { return t.Start(authorization) })
	return t, err
}

// ControlTask controls the task of an execution: see [Task.Control], also for the errors. It is the Apply of the broker's mutation,
// which answers a repeated request with its receipt before it gets here, and in whose digest execution, revision and action
// are (R78, R80).
func (f Fence) ControlTask(ctx context.Context, executionID string, c Control) (contract.Receipt, error) {
	if err := f.mayWrite("/execution_id", executionID, contract.MaxMetaText, epochIs|sessionIs); err != nil {
		return contract.Receipt{}, err
	}
	return receipted(ctx, f, taskName(executionID), func(t Task) (Task, contract.Receipt, error) { return t.Control(c) })
}

// Task tells the task of an execution, without a lock: nothing may be written because of it. What was never started is the zero Task.
func (s Space) Task(ctx context.Context, values store.Values, executionID string) (Task, error) {
	v, err := values.Load(ctx, s.id(taskName(executionID)))
	if err != nil {
		return Task{}, err
	}
	return decode[Task](v)
}

func taskName(executionID string) string { return "task/" + executionID }
