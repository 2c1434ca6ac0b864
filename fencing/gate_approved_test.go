package fencing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

var task7 = TaskIdentity{Tenant: 4, Task: 7}

// runner is a process that works for a task: its gate, its durable admission, and a log of what it did.
type runner struct {
	t     *testing.T
	gate  *Gate
	spy   *spyValues
	log   []string
	leave map[string]func()
}

func newRunner(t *testing.T, calls ...string) *runner {
	t.Helper()
	spy, f := opened(t)
	_, err := f.StartTask(t.Context(), "x1", "A")
	require.NoError(t, err)
	spy.put("session/p", `{"agent_id":"a1","cell_id":"c1","boot_id":"b1","generation":3,"epoch":"e1"}`)
	spy.calls = nil
	r := &runner{t: t, gate: NewGate(admissionOf(t, spy)), spy: spy, leave: map[string]func(){}}
	for _, id := range calls {
		r.leave[id] = enter(t, r.gate, id)
	}
	return r
}

// hold holds the fence of the dispatcher's active session.
func (r *runner) hold(ctx context.Context) (Fence, error) {
	return space.Hold(ctx, r.spy, SessionIs(Caller{"p", sampleBinding, "e1"}))
}

// delivery is one delivery of the approved stop. Its hang-up ends the calls that it names, later.
func (r *runner) delivery(hangUp ...string) ApprovedControl {
	return ApprovedControl{
		Action: ActionStop, Says: task7, Task: task7,
		Guard: func(ctx context.Context) error { _, err := r.hold(ctx); return err },
		Persist: func(ctx context.Context, active int64) (contract.Receipt, error) {
			_, err := r.gate.Enter("late")
			assert.ErrorIs(r.t, err, ErrTerminal, "closed here before it is durable")
			f, err := r.hold(ctx)
			if err != nil {
				return contract.Receipt{}, err
			}
			return f.StopAdmission(ctx, "agent", "task/7", "e1", active)
		},
		HangUp: func(_ context.Context, calls []string) error {
			assert.True(r.t, admissionOf(r.t, r.spy).Stopped, "durable before it hangs up")
			r.log = append(r.log, fmt.Sprint("hang up ", calls))
			for _, id := range hangUp {
				time.AfterFunc(time.Minute, r.leave[id])
			}
			return nil
		},
		Observe: func(step ApprovedStep, active int64) { r.log = append(r.log, fmt.Sprint(step, " ", active)) },
	}
}

// gone is the context of a caller that went away: nothing waits under it.
func gone(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// R87, R88: admission is closed, here and durably, before anything is hung up, and the answer comes when the last call has ended.
func TestApplyApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, "a", "b")
		began := time.Now()
		receipt, err := r.gate.ApplyApproved(t.Context(), r.delivery("a", "b"))
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
		assert.Equal(t, []string{"closed 2", "persisted 2", "hang up [a b]", "hung_up 2", "drained 0", "applied 0"}, r.log)
		assert.True(t, receipt.Applied())
		assert.Equal(t, &contract.Barrier{ID: "task/7", Epoch: "e1"}, receipt.Barrier)
		assert.Equal(t, Admission{Generation: 3, Stopped: true, Barrier: "task/7", Drained: true, Epoch: "e1"}, admissionOf(t, r.spy))
	})
}

// R93: a local stop is not written back as a truth about the task.
func TestApplyApprovedLeavesTheTask(t *testing.T) {
	r := newRunner(t)
	before := r.spy.content("task/x1")
	_, err := r.gate.ApplyApproved(t.Context(), r.delivery())
	require.NoError(t, err)
	assert.Equal(t, before, r.spy.content("task/x1"))
	assert.Equal(t, []string{"admission/agent"}, r.spy.wrote())
}

// R85, R90, R91: when the time is up admission stays closed, durably too; each further delivery is carried out again, until one
// is done.
func TestApplyApprovedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, "a", "b")
		for i, hangUp := range [][]string{{}, {"a"}} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			receipt, err := r.gate.ApplyApproved(ctx, r.delivery(hangUp...))
			cancel()
			require.ErrorIs(t, err, ErrDrainTimeout)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			code, _ := contract.CodeOf(err)
			assert.Equal(t, contract.DeadlineExceeded, code)
			assert.Zero(t, receipt)
			assert.Equal(t, Admission{Generation: 3, Stopped: true, Barrier: "task/7", Epoch: "e1"}, admissionOf(t, r.spy))
			_, err = r.gate.Enter("c")
			require.ErrorIs(t, err, ErrTerminal)
			require.ErrorIs(t, r.gate.Open(4), ErrTerminal)
			assert.Len(t, r.log, 4*(i+1))
		}
		receipt, err := r.gate.ApplyApproved(t.Context(), r.delivery("b"))
		require.NoError(t, err)
		assert.Equal(t, []string{
			"closed 2", "persisted 2", "hang up [a b]", "hung_up 2",
			"closed 2", "persisted 2", "hang up [a b]", "hung_up 2",
			"closed 1", "persisted 1", "hang up [b]", "hung_up 1", "drained 0", "applied 0",
		}, r.log)
		assert.Equal(t, "APPLIED 3 -> 3, task/7 with 0 active", told(receipt, nil))

		receipt, err = r.gate.ApplyApproved(t.Context(), r.delivery())
		require.NoError(t, err)
		assert.True(t, receipt.Applied())
		assert.Equal(t, []string{"closed 0", "persisted 0", "hang up []", "hung_up 0", "drained 0", "applied 0"}, r.log[14:])
	})
}

// R92: a process that starts again after a stop is stopped, and carries out another delivery all the same.
func TestApplyApprovedAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := r.gate.ApplyApproved(ctx, r.delivery())
		require.ErrorIs(t, err, ErrDrainTimeout)

		r.gate = NewGate(admissionOf(t, r.spy), "a")
		r.leave["a"] = func() { r.gate.Leave("a") }
		_, err = r.gate.Enter("b")
		require.ErrorIs(t, err, ErrTerminal)
		_, err = r.gate.ApplyApproved(t.Context(), r.delivery("a"))
		require.NoError(t, err)
	})
}

// R90: a caller that goes away loses no stop: it is durable, and its wait is over.
func TestApplyApprovedWithoutItsCaller(t *testing.T) {
	r := newRunner(t, "a")
	d := r.delivery()
	guard, persist := d.Guard, d.Persist
	d.Guard = func(context.Context) error { return guard(t.Context()) }
	d.Persist = func(ctx context.Context, active int64) (contract.Receipt, error) {
		require.NoError(t, ctx.Err())
		return persist(ctx, active)
	}
	_, err := r.gate.ApplyApproved(gone(t), d)
	require.ErrorIs(t, err, ErrDrainTimeout)
	assert.True(t, admissionOf(t, r.spy).Stopped)
}

// R86: whoever has not the active session, or means another task, closes nothing.
func TestApplyApprovedRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*runner, *ApprovedControl)
		want   error
		code   contract.FailureCode
	}{
		"R86 no session": {func(r *runner, _ *ApprovedControl) { clear(r.spy.stored) }, ErrNoSession, contract.Unauthenticated},
		"R86 another session": {func(r *runner, _ *ApprovedControl) {
			r.spy.put("session/p", `{"agent_id":"a1","cell_id":"c1","boot_id":"b2","generation":4,"epoch":"e1"}`)
		}, ErrSessionFenced, contract.Unauthenticated},
		"R86 another tenant": {func(_ *runner, c *ApprovedControl) { c.Says.Tenant++ }, ErrNotApproved, contract.PermissionDenied},
		"R86 another task":   {func(_ *runner, c *ApprovedControl) { c.Says.Task++ }, ErrNotApproved, contract.PermissionDenied},
		"R86 no tenant":      {func(_ *runner, c *ApprovedControl) { c.Says.Tenant = 0 }, contract.ErrInvalid, contract.InvalidArgument},
		"R86 no task, twice": {func(_ *runner, c *ApprovedControl) { c.Says.Task, c.Task.Task = 0, 0 }, contract.ErrInvalid, contract.InvalidArgument},
		"A22 RESUME":         {func(_ *runner, c *ApprovedControl) { c.Action = ActionResume }, contract.ErrInvalid, contract.InvalidArgument},
		"A22 PAUSE":          {func(_ *runner, c *ApprovedControl) { c.Action = ActionPause }, contract.ErrInvalid, contract.InvalidArgument},
		"A22 REOPEN":         {func(_ *runner, c *ApprovedControl) { c.Action = "REOPEN" }, contract.ErrInvalid, contract.InvalidArgument},
		"A22 no action":      {func(_ *runner, c *ApprovedControl) { c.Action = "" }, contract.ErrInvalid, contract.InvalidArgument},
		"no guard":           {func(_ *runner, c *ApprovedControl) { c.Guard = nil }, contract.ErrInvalid, contract.InvalidArgument},
		"no persistence":     {func(_ *runner, c *ApprovedControl) { c.Persist = nil }, contract.ErrInvalid, contract.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, "a")
			d := r.delivery("a")
			c.change(r, &d)
			receipt, err := r.gate.ApplyApproved(gone(t), d)
			require.ErrorIs(t, err, c.want)
			code, _ := contract.CodeOf(err)
			assert.Equal(t, c.code, code)
			assert.Zero(t, receipt)
			assert.Empty(t, r.log)
			assert.Empty(t, r.spy.wrote())
			enter(t, r.gate, "b")
		})
	}
}

// R87: what is not durable is not gone on with; but what is closed stays closed, and another delivery begins again.
func TestApplyApprovedIsNotDurable(t *testing.T) {
	for name, c := range map[string]struct {
		receipt contract.Receipt
		err     error
		want    error
	}{
		"the store is down":   {contract.Receipt{}, errDown, errDown},
		"the fence was lost":  {contract.Receipt{}, ErrSessionFenced, ErrSessionFenced},
		"no receipt":          {contract.Receipt{}, nil, contract.ErrOutcomeUnknown},
		"not known":           {contract.Receipt{Result: contract.ResultUnknown}, nil, contract.ErrOutcomeUnknown},
		"refused":             {contract.Receipt{Result: contract.ResultRefused}, nil, contract.ErrNotApplied},
		"applied, no barrier": {contract.Receipt{Result: contract.ResultApplied}, nil, contract.ErrOutcomeUnknown},
	} {
		r := newRunner(t, "a")
		d := r.delivery("a")
		d.Persist = func(context.Context, int64) (contract.Receipt, error) { return c.receipt, c.err }
		receipt, err := r.gate.ApplyApproved(gone(t), d)
		require.ErrorIs(t, err, c.want, name)
		assert.Zero(t, receipt, name)
		assert.Equal(t, []string{"closed 1"}, r.log, name)
		_, err = r.gate.Enter("b")
		require.ErrorIs(t, err, ErrTerminal, name)
	}
}

// R88: that every call has ended is told once it is durable, and not before.
func TestApplyApprovedIsNotDurablyDrained(t *testing.T) {
	for name, last := range map[string]contract.Receipt{"still accepted": {Result: contract.ResultAccepted}, "no receipt": {}} {
		for _, calls := range [][]string{{}, {"a"}} {
			synctest.Test(t, func(t *testing.T) {
				r := newRunner(t, calls...)
				d := r.delivery()
				persist := d.Persist
				d.HangUp = func(context.Context, []string) error { // they end by themselves
					for _, leave := range r.leave {
						leave()
					}
					return nil
				}
				d.Persist = func(ctx context.Context, active int64) (contract.Receipt, error) {
					if active == 0 {
						return last, nil
					}
					return persist(ctx, active)
				}
				receipt, err := r.gate.ApplyApproved(t.Context(), d)
				require.ErrorIs(t, err, contract.ErrOutcomeUnknown, name)
				assert.Zero(t, receipt, name)
				assert.NotContains(t, r.log, "applied 0", name)
			})
		}
	}
}

// R88, R90: a hang-up that failed is not the answer: whether the calls end is.
func TestApplyApprovedHangUpFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("the exchange is down")
		r := newRunner(t, "a")
		d := r.delivery()
		d.HangUp = func(context.Context, []string) error { return down }
		d.Observe = nil
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := r.gate.ApplyApproved(ctx, d)
		require.ErrorIs(t, err, ErrDrainTimeout)
		require.ErrorIs(t, err, down)

		time.AfterFunc(time.Minute, r.leave["a"])
		_, err = r.gate.ApplyApproved(t.Context(), d)
		require.NoError(t, err)

		d.HangUp = nil
		_, err = r.gate.ApplyApproved(t.Context(), d)
		require.NoError(t, err)
	})
}

// R86: an identity is two numbers from 1, each in its one form.
func TestParseTaskIdentity(t *testing.T) {
	id, err := ParseTaskIdentity("4", "7")
	require.NoError(t, err)
	assert.Equal(t, task7, id)
	id, err = ParseTaskIdentity(fmt.Sprint(math.MaxInt64), "1")
	require.NoError(t, err)
	assert.Equal(t, TaskIdentity{math.MaxInt64, 1}, id)
	for _, bad := range []string{"", "0", "-1", "+1", "01", " 1", "1 ", "1.0", "1e3", "0x1", "one", "9223372036854775808", "١"} {
		for path, texts := range map[string][2]string{"/tenant_id": {bad, "7"}, "/task_id": {"4", bad}} {
			id, err := ParseTaskIdentity(texts[0], texts[1])
			require.ErrorIs(t, err, contract.ErrInvalid, bad)
			assert.True(t, strings.HasSuffix(answer(err), path), bad)
			assert.Zero(t, id)
		}
	}
}
