package fencing

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// executing is an agent's side: a broker, the agent's states, and how often its adapter was called.
type executing struct {
	*spyValues
	b     *broker.Broker[*memstore.Tx]
	now   time.Time
	calls int
}

func newExecuting(t *testing.T) *executing {
	t.Helper()
	b, err := broker.New(memstore.New(nil), nil)
	require.NoError(t, err)
	spy := agentThatKnows(PermitMark{})
	spy.put("admission/a1", openAdmission)
	return &executing{spy, b, at, 0}
}

// execute is the Execute of an operation with a permit, as a service has it: the caller's session first, and the permit where the
// operation is claimed.
func (e *executing) execute(operationID string, p Permit) (contract.Receipt, error) {
	var f Fence
	m := broker.Mutation[*memstore.Tx]{
		Tenant: "t", AgentID: "a1", Method: contract.Method{Name: "/agent.v1.AgentService/Execute"},
		Meta:       contract.RequestMeta{OperationID: operationID, IdempotencyKey: "k"},
		Digest:     contract.NewContent("Execute").Text("execution", p.ExecutionID).Text("permit", p.ID).Digest(),
		Identities: []broker.Identity{{Kind: "execution", Value: p.ExecutionID}, {Kind: "permit", Value: p.ID}},
		Guard: func(ctx context.Context, _ *memstore.Tx) (err error) {
			f, err = space.Hold(ctx, e.spyValues, SessionIs(Caller{"dispatcher", sampleBinding, "e1"}))
			return err
		},
		Apply: func(ctx context.Context, _ *memstore.Tx) (contract.Receipt, error) {
			open, err := f.And(ctx, AdmissionOpen("a1"))
			if err == nil {
				_, err = open.ConsumePermit(ctx, "dispatcher", p, e.now)
			}
			return contract.Receipt{}, err
		},
		Invoke: func(context.Context, broker.Call) (contract.Receipt, error) {
			e.calls++
			return contract.Receipt{Result: contract.ResultApplied, Ref: "call/9"}, nil
		},
	}
	return e.b.Mutate(context.Background(), m)
}

// R50: the repeated request of an execution is answered with its receipt, also after the permit's deadline, and consumes nothing.
func TestExecuteIsRepeated(t *testing.T) {
	e := newExecuting(t)
	first, err := e.execute("op-1", samplePermit)
	require.NoError(t, err)
	require.NoError(t, first.Err())
	e.now = time.UnixMilli(sampleAsk.Deadline)
	again, err := e.execute("op-1", samplePermit)
	require.NoError(t, err)
	assert.True(t, again.Replayed)
	assert.Equal(t, first.Ref, again.Ref)
	assert.Equal(t, 1, e.calls)
	assert.Equal(t, []string{"permit_mark/line-1"}, e.wrote())
}

// R53, R54: another permit for the execution, another execution for the permit, and another operation for both, are ABORTED; the
// adapter is not called and no permit is consumed.
func TestExecuteOfAnother(t *testing.T) {
	e := newExecuting(t)
	_, err := e.execute("op-1", samplePermit)
	require.NoError(t, err)
	for name, p := range map[string]Permit{
		"another permit":          with(func(p *Permit) { p.ID, p.Token = "p2", 3 }),
		"another permit's token":  with(func(p *Permit) { p.ID = "p2" }),
		"another execution":       with(func(p *Permit) { p.ExecutionID = "x2" }),
		"both, another operation": samplePermit,
	} {
		_, err := e.execute("op-2", p)
		assert.ErrorIs(t, err, contract.ErrSecondOperation, name)
		code, _ := contract.CodeOf(err)
		assert.Equal(t, contract.Aborted, code, name)
	}
	assert.Equal(t, 1, e.calls)
	assert.Equal(t, []string{"permit_mark/line-1"}, e.wrote())
}

// R51, R56, R64, R73: a permit that is refused leaves no claim: the operation has its execution, and runs with the permit as it is.
func TestExecuteIsRefused(t *testing.T) {
	e := newExecuting(t)
	for name, c := range map[string]struct {
		p    Permit
		now  time.Time
		want error
	}{
		"epoch":      {with(func(p *Permit) { p.Epoch = "e0" }), at, ErrEpochFenced},
		"generation": {with(func(p *Permit) { p.Binding.Generation = 2 }), at, ErrPermitFenced},
		"deadline":   {samplePermit, time.UnixMilli(sampleAsk.Deadline), ErrExpired},
	} {
		e.now = c.now
		_, err := e.execute("op-1", c.p)
		assert.ErrorIs(t, err, c.want, name)
	}
	e.now = at
	assert.Empty(t, e.wrote())
	r, err := e.execute("op-1", samplePermit)
	require.NoError(t, err)
	require.NoError(t, r.Err())

	_, err = fenceOf(e.spyValues).EndPermits(t.Context(), "line-1", 3)
	require.NoError(t, err)
	_, err = e.execute("op-2", with(func(p *Permit) { p.ID, p.Token, p.ExecutionID = "p3", 3, "x3" }))
	assert.ErrorIs(t, err, ErrVoid)
	_, err = e.execute("op-3", with(func(p *Permit) { p.ID, p.Token, p.ExecutionID = "p0", 1, "x0" }))
	assert.ErrorIs(t, err, ErrTokenStale)
	assert.Equal(t, 1, e.calls)
}

// R121, A8: a caller whose session has ended is told so, and not the receipt of what it did.
func TestFencedCallerGetsNoReceipt(t *testing.T) {
	e := newExecuting(t)
	_, err := e.execute("op-1", samplePermit)
	require.NoError(t, err)
	_, err = space.JoinSession(t.Context(), e.spyValues, "dispatcher", Session{Binding{"a1", "c1", "b2", 4}, "e1"})
	require.NoError(t, err)
	r, err := e.execute("op-1", samplePermit)
	assert.Equal(t, standing(ErrSessionFenced, 4), err)
	assert.Zero(t, r)
	_, err = e.execute("op-2", samplePermit)
	assert.Equal(t, standing(ErrSessionFenced, 4), err)
	assert.Equal(t, 1, e.calls)
}

// R70, R71, R73: a permit that is asked for again is the same one, by its receipt and by what is read; after the release it is void,
// and no other is issued.
func TestPermitIsAskedForAgain(t *testing.T) {
	ctx := t.Context()
	spy, f, c := dispatcher(ctx, t)
	b, err := broker.New(memstore.New(nil), nil)
	require.NoError(t, err)
	ask := func(operationID string) (contract.Receipt, error) {
		q := askFor("x1", "r1", 1)
		return b.Mutate(ctx, broker.Mutation[*memstore.Tx]{
			Tenant: "t", AgentID: "a1", Method: contract.Method{Name: "/agent.v1.DispatcherService/GetExecutionPermit"},
			Meta:   contract.RequestMeta{OperationID: operationID, IdempotencyKey: "k"},
			Digest: contract.NewContent("GetExecutionPermit").Text("execution", q.ExecutionID).Int("revision", q.ExpectedRevision).Digest(),
			Apply: func(ctx context.Context, _ *memstore.Tx) (contract.Receipt, error) {
				p, r, err := f.IssuePermit(ctx, c.Peer, q)
				return contract.Receipt{Result: contract.ResultApplied, Before: r.Revision - 1, After: r.Revision, Ref: p.ID}, err
			},
		})
	}
	first, err := ask("op-1")
	require.NoError(t, err)
	again, err := ask("op-1")
	require.NoError(t, err)
	assert.True(t, again.Replayed)
	p, valid, err := space.Permit(ctx, spy, "x1")
	require.NoError(t, err)
	assert.True(t, valid)
	assert.Equal(t, []string{p.ID, p.ID}, []string{first.Ref, again.Ref})
	assert.Equal(t, []int64{1, 2}, []int64{again.Before, again.After})
	_, err = ask("op-2")
	assert.ErrorIs(t, err, ErrPermitted)

	_, err = f.ReleaseReservation(ctx, "line-1", Lease{"r1", "a1", p.Token}, applied)
	require.NoError(t, err)
	again, err = ask("op-1")
	require.NoError(t, err)
	assert.Equal(t, p.ID, again.Ref)
	void, valid, err := space.Permit(ctx, spy, "x1")
	require.NoError(t, err)
	assert.Equal(t, p, void)
	assert.False(t, valid)
}
