package fencing

import (
	"context"
	"strconv"

	"github.com/confirmexec/confirmexec/contract"
)

// TaskIdentity is the tenant and the task that a runner works for, both of them numbers from 1.
type TaskIdentity struct{ Tenant, Task int64 }

// ParseTaskIdentity reads what a request says, in decimal digits without a sign or leading zeros. The error is a
// *[contract.InvalidError] (R86).
func ParseTaskIdentity(tenant, task string) (id TaskIdentity, err error) {
	if id.Tenant, err = parseID("/tenant_id", tenant); err != nil {
		return TaskIdentity{}, err
	}
	if id.Task, err = parseID("/task_id", task); err != nil {
		return TaskIdentity{}, err
	}
	return id, nil
}

func parseID(path, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != text {
		return 0, &contract.InvalidError{Path: path, Problem: "must be a whole number from 1"}
	}
	return n, nil
}

// validate refuses an identity without a tenant or a task, as a request that left one out has.
func (id TaskIdentity) validate() error {
	if id.Tenant <= 0 {
		return &contract.InvalidError{Path: "/tenant_id", Problem: "must be a whole number from 1"}
	}
	if id.Task <= 0 {
		return &contract.InvalidError{Path: "/task_id", Problem: "must be a whole number from 1"}
	}
	return nil
}

// ApprovedControl is one delivery of a task-level control (ApplyApprovedTaskControl). It has no operation, no key and no revision:
// every delivery is processed, in whatever order they come. So there is one action, which nothing takes back (R85, A22).
type ApprovedControl struct {
	Action Action       // STOP; every other is an error
	Says   TaskIdentity // the tenant and task that the request says
	Task   TaskIdentity // the ones that this process works for

	// Guard checks that the caller has the active session, before anything is closed. Its error is the answer.
	Guard func(ctx context.Context) error

	// Persist makes the stop durable, in a transaction of its own whose fence is held: by [Fence.StopAdmission], with this number of
	// active calls. It is called once the gate is closed and, if that left calls active, once again when none is. Its context
	// does not end with the caller's, so that no stop is lost because the caller went away: give it a limit of its own.
	Persist func(ctx context.Context, active int64) (contract.Receipt, error)

	// HangUp asks the registered calls to end, and need not wait for them. What it does is finished by the calls' own leave
	// functions, so its error is only told when the time is up before that. Nil: they end by themselves.
	HangUp func(ctx context.Context, calls []string) error

	// Observe is told each step once it is done, and how many registered calls were active then. May be nil (R87).
	Observe func(step ApprovedStep, active int64)
}

// ApprovedStep is a step of [Gate.ApplyApproved].
type ApprovedStep string

// The steps, in their order.
const (
	StepClosed    ApprovedStep = "closed"    // no call can be registered any more
	StepPersisted ApprovedStep = "persisted" // nor after a restart
	StepHungUp    ApprovedStep = "hung_up"   // the calls were asked to end
	StepDrained   ApprovedStep = "drained"   // they have ended
	StepApplied   ApprovedStep = "applied"   // and that is durable
)

// ApplyApproved carries out one delivery of an approved stop: it closes the gate for ever, makes that durable, hangs up, and waits
// for the registered calls to end. It returns a receipt that says APPLIED, or an error; the stop remains whatever the error is,
// and another delivery goes through all of it again (R87, R88, R91). What becomes of the task is the dispatcher's to say: this
// changes admission alone (R93).
//
// Errors before anything is closed: *[contract.InvalidError], also for every action but STOP and for an identity that is none;
// ErrNotApproved for another tenant or task; Guard's (R86). After that: Persist's; ErrDrainTimeout, with HangUp's as its cause
// if there is one (R90); the receipt's own, if Persist returned one that says neither ACCEPTED nor APPLIED.
func (g *Gate) ApplyApproved(ctx context.Context, c ApprovedControl) (contract.Receipt, error) {
	if err := c.permits(ctx); err != nil {
		return contract.Receipt{}, err
	}
	active := g.Stop()
	c.observe(StepClosed, active)
	r, err := c.persist(ctx, active)
	if err != nil {
		return contract.Receipt{}, err
	}
	c.observe(StepPersisted, active)
	if err := g.end(ctx, c); err != nil {
		return contract.Receipt{}, err
	}
	if active != 0 {
		if r, err = c.persist(ctx, 0); err != nil {
			return contract.Receipt{}, err
		}
	}
	if err := r.Err(); err != nil {
		return contract.Receipt{}, err
	}
	c.observe(StepApplied, 0)
	return r, nil
}

func (c ApprovedControl) permits(ctx context.Context) error {
	switch {
	case c.Action != ActionStop:
		return &contract.InvalidError{Path: "/action", Problem: "must be STOP: without an order only a stop is safe"}
	case c.Guard == nil:
		return &contract.InvalidError{Path: "/guard", Problem: "must be set"}
	case c.Persist == nil:
		return &contract.InvalidError{Path: "/persist", Problem: "must be set"}
	}
	if err := c.Says.validate(); err != nil {
		return err
	}
	if c.Says != c.Task {
		return ErrNotApproved
	}
	return c.Guard(ctx)
}

// persist makes the stop durable. A receipt that says neither that it is nor that calls are active is an error.
func (c ApprovedControl) persist(ctx context.Context, active int64) (contract.Receipt, error) {
	r, err := c.Persist(context.WithoutCancel(ctx), active)
	if err == nil && r.Result != contract.ResultAccepted {
		err = r.Err()
	}
	return r, err
}

// end hangs up and drains.
func (g *Gate) end(ctx context.Context, c ApprovedControl) error {
	var hangUp error
	if c.HangUp != nil {
		calls := g.Calls()
		hangUp = c.HangUp(ctx, calls)
		c.observe(StepHungUp, int64(len(calls)))
	}
	err := g.Drain(ctx)
	if err == nil {
		c.observe(StepDrained, 0)
	} else if hangUp != nil {
		err = ErrDrainTimeout.With(hangUp)
	}
	return err
}

func (c ApprovedControl) observe(step ApprovedStep, active int64) {
	if c.Observe != nil {
		c.Observe(step, active)
	}
}
