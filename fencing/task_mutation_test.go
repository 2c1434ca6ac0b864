package fencing

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// controller sends requests to an agent through the broker.
type controller struct {
	t  *testing.T
	st *memstore.Store
	b  *broker.Broker[*memstore.Tx]
	g  *Gate
}

// newController is one whose agent's admission is open in generation 2, and whose tasks x1 and x2 run.
func newController(t *testing.T) controller {
	t.Helper()
	st := memstore.New(nil)
	b, err := broker.New(st, nil)
	require.NoError(t, err)
	c := controller{t, st, b, openGate()}
	c.do(func(f Fence) {
		_, err := f.StartAdmission(t.Context(), "agent")
		require.NoError(t, err)
		_, err = f.SetAdmission(t.Context(), "agent", AdmissionRequest{"b1", 1, true, "e"}, 0)
		require.NoError(t, err)
		for _, execution := range []string{"x1", "x2"} {
			_, err = f.StartTask(t.Context(), execution, "A")
			require.NoError(t, err)
		}
	})
	return c
}

// do calls fn in a transaction.
func (c controller) do(fn func(Fence)) {
	c.t.Helper()
	tx, err := c.st.BeginTx(c.t.Context())
	require.NoError(c.t, err)
	fn(c.under(tx))
	require.NoError(c.t, tx.Commit())
}

func (c controller) under(tx *memstore.Tx) Fence { return fenceOf(c.st.Values(tx)) }

func (c controller) task(execution string) (task Task) {
	c.t.Helper()
	c.do(func(f Fence) {
		var err error
		task, err = space.Task(c.t.Context(), f.values, execution)
		require.NoError(c.t, err)
	})
	return task
}

func (c controller) admission() (a Admission) {
	c.t.Helper()
	c.do(func(f Fence) {
		var err error
		a, err = space.Admission(c.t.Context(), f.values, "agent")
		require.NoError(c.t, err)
	})
	return a
}

// mutation is a request of an operation, whose content this is.
func mutation(method, operation, key string, content *contract.Content) broker.Mutation[*memstore.Tx] {
	return broker.Mutation[*memstore.Tx]{
		Tenant: "t", AgentID: "agent", Meta: contract.RequestMeta{OperationID: operation, IdempotencyKey: key},
		Method: contract.AgentMethods("agent.v1.AgentService").Of("/agent.v1.AgentService/" + method), Digest: content.Digest(),
	}
}

// control sends a control of a task.
func (c controller) control(operation, key, execution string, r Control) (contract.Receipt, error) {
	m := mutation("ApplyTaskControl", operation, key, contract.NewContent("ApplyTaskControl").Text("execution_id", execution).
		Int("expected_task_revision", r.ExpectedRevision).Text("action", string(r.Action)).Text("authorization", r.Authorization))
	m.Apply = func(ctx context.Context, tx *memstore.Tx) (contract.Receipt, error) {
		return c.under(tx).ControlTask(ctx, execution, r)
	}
	return c.b.Mutate(c.t.Context(), m)
}

// set sends an admission request, which goes along with the gate.
func (c controller) set(operation string, r AdmissionRequest) (contract.Receipt, error) {
	m := mutation("SetAdmissionState", operation, operation, contract.NewContent("SetAdmissionState").Text("barrier_id", r.BarrierID).
		Int("expected_generation", r.ExpectedGeneration).Bool("open", r.Open))
	m.Identities = []broker.Identity{{Kind: "barrier", Value: r.BarrierID}}
	m.Apply = func(ctx context.Context, tx *memstore.Tx) (contract.Receipt, error) {
		var active int64
		if !r.Open {
			active = c.g.Close(r.ExpectedGeneration)
		}
		return c.under(tx).SetAdmission(ctx, "agent", r, active)
	}
	receipt, err := c.b.Mutate(c.t.Context(), m)
	if err == nil && r.Open && !receipt.Replayed {
		require.NoError(c.t, c.g.Open(receipt.After))
	}
	return receipt, err
}

// R80, R81: an earlier RESUME that comes again, after another PAUSE, is answered with its receipt and resumes nothing; a new one does.
func TestEarlierResumeComesAgain(t *testing.T) {
	c := newController(t)
	requests := []Control{{ActionPause, 1, ""}, {ActionResume, 2, "B"}, {ActionPause, 3, ""}}
	var receipts []contract.Receipt
	for i, r := range requests {
		receipt, err := c.control("op-"+string(rune('1'+i)), "k", "x1", r)
		require.NoError(t, err)
		receipts = append(receipts, receipt)
	}
	for i, r := range requests {
		again, err := c.control("op-"+string(rune('1'+i)), "k", "x1", r)
		require.NoError(t, err)
		assert.True(t, again.Replayed)
		again.Replayed = false
		assert.Equal(t, receipts[i], again)
	}
	assert.Equal(t, taskOf(4, TaskPaused, "A", "B"), c.task("x1"))

	_, err := c.control("op-4", "k", "x1", Control{ActionResume, 4, "B"})
	require.ErrorIs(t, err, ErrUnauthorized)
	r, err := c.control("op-4", "k", "x1", Control{ActionResume, 4, "C"})
	require.NoError(t, err, "a refusal keeps no operation")
	assert.True(t, r.Applied())
	assert.Equal(t, TaskRunning, c.task("x1").State)
}

// R78: an operation's key stands for one execution, revision and action; with another it is a conflict, whatever that would do.
func TestControlConflicts(t *testing.T) {
	c := newController(t)
	first := Control{ActionPause, 1, "B"}
	_, err := c.control("op", "k", "x1", first)
	require.NoError(t, err)
	before := c.task("x1")
	for name, send := range map[string]func() (contract.Receipt, error){
		"another action":        func() (contract.Receipt, error) { return c.control("op", "k", "x1", Control{ActionStop, 1, "B"}) },
		"another revision":      func() (contract.Receipt, error) { return c.control("op", "k", "x1", Control{ActionPause, 2, "B"}) },
		"another execution":     func() (contract.Receipt, error) { return c.control("op", "k", "x2", first) },
		"another authorization": func() (contract.Receipt, error) { return c.control("op", "k", "x1", Control{ActionPause, 1, "C"}) },
		"another key":           func() (contract.Receipt, error) { return c.control("op", "k2", "x1", first) },
	} {
		_, err := send()
		require.ErrorIs(t, err, contract.ErrKeyReused, name)
		code, _ := contract.CodeOf(err)
		assert.Equal(t, contract.Aborted, code, name)
	}
	assert.Equal(t, before, c.task("x1"))
	assert.EqualValues(t, 1, c.task("x2").Revision)
}

// A23: a stop that comes again has its receipt; another operation's stop reads that there is one.
func TestStopComesAgain(t *testing.T) {
	c := newController(t)
	for range 2 {
		r, err := c.control("op-1", "k", "x1", Control{ActionStop, 1, ""})
		require.NoError(t, err)
		assert.True(t, r.Applied())
	}
	_, err := c.control("op-2", "k", "x1", Control{ActionStop, 2, ""})
	require.Equal(t, "ALREADY_EXISTS already_stopped (current 2)", answer(err))
	assert.EqualValues(t, 2, c.task("x1").Revision)
}

// R44, R46: a barrier that comes again, also when the generation has gone on, is answered with its receipt and moves nothing; for
// anything else it is a conflict. Neither shuts the gate.
func TestBarrierComesAgain(t *testing.T) {
	c := newController(t)
	enter(t, c.g, "a")
	shut, open := AdmissionRequest{"b2", 2, false, "e"}, AdmissionRequest{"b3", 3, true, "e"}
	first, err := c.set("b2", shut)
	require.NoError(t, err)
	assert.Equal(t, "ACCEPTED 2 -> 3, b2 with 1 active", told(first, nil))
	_, err = c.g.Enter("b")
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.set("b3", open)
	require.NoError(t, err)
	for _, epoch := range []Epoch{"e", "a later one"} {
		shut.Epoch = epoch
		again, err := c.set("b2", shut)
		require.NoError(t, err)
		assert.True(t, again.Replayed)
		assert.Equal(t, told(first, nil), told(again, nil))
	}
	for name, r := range map[string]AdmissionRequest{
		"another generation": {"b2", 4, false, "e"}, "another target": {"b2", 2, true, "e"}, "both, and it would be next": {"b2", 4, true, "e"},
	} {
		_, err := c.set("b2", r)
		require.ErrorIs(t, err, contract.ErrKeyReused, name)
		_, err = c.set("another operation", r)
		require.ErrorIs(t, err, contract.ErrSecondOperation, name)
	}
	_, err = c.set("b4", AdmissionRequest{"b4", 3, false, "e"})
	require.Equal(t, "ABORTED revision_moved (current 4)", answer(err))
	assert.Equal(t, Admission{Generation: 4, Open: true, Barrier: "b3", Epoch: "e"}, c.admission())
	enter(t, c.g, "b")
}

// R48, R20: the receipt of a close advances to applied once it is drained, by the evidence that is stored; one whose place an opening
// took is stopped.
func TestCloseAdvances(t *testing.T) {
	c := newController(t)
	leave := enter(t, c.g, "a")
	_, err := c.set("b2", AdmissionRequest{"b2", 2, false, "e"})
	require.NoError(t, err)
	resolve := func(barrier string) (contract.Receipt, error) {
		return c.b.ResolveMutation(t.Context(), broker.MutationRef{Tenant: "t", AgentID: "agent", OperationID: barrier}, "the runner",
			func(context.Context, broker.Call) (contract.Receipt, error) {
				a := c.admission()
				if a.Barrier != barrier {
					return contract.Receipt{Result: contract.ResultStopped, Detail: "another change took its place"}, nil
				}
				return a.Reached(barrier)
			})
	}
	r, err := resolve("b2")
	require.NoError(t, err)
	assert.Equal(t, contract.ResultAccepted, r.Result)
	leave()
	require.NoError(t, c.g.Drain(t.Context()))
	c.do(func(f Fence) {
		_, err = f.DrainAdmission(t.Context(), "agent", "b2", 0)
		require.NoError(t, err)
	})
	r, err = resolve("b2")
	require.NoError(t, err)
	require.NoError(t, r.Err())
	assert.Equal(t, "APPLIED 2 -> 3, b2 with 0 active", told(r, nil))

	for _, request := range []AdmissionRequest{{"b3", 3, true, "e"}, {"b4", 4, false, "e"}, {"b5", 5, true, "e"}} {
		_, err = c.set(request.BarrierID, request)
		require.NoError(t, err)
		if request.Open {
			enter(t, c.g, request.BarrierID)
		}
	}
	c.do(func(f Fence) {
		_, err = f.DrainAdmission(t.Context(), "agent", "b4", 0)
		require.ErrorIs(t, err, ErrMoved)
	})
	r, err = resolve("b4")
	require.NoError(t, err)
	assert.Equal(t, contract.ResultStopped, r.Result)
	require.Error(t, r.Err())
}
