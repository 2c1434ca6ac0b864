package brokertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/storetest"
)

const agent = "agent-1-" + marker

// mutation is a mutation without an effect.
func mutation[TTx any](operation string) broker.Mutation[TTx] {
	return broker.Mutation[TTx]{
		Tenant: firmA, AgentID: agent, Method: contract.Method{Name: "/agent.v1.AgentService/ExecuteAuthorized"},
		Meta:   contract.RequestMeta{OperationID: operation, IdempotencyKey: marked("key of " + operation)},
		Digest: contract.NewContent("ExecuteAuthorized").Text("number", "1").Digest(),
	}
}

func ref(operation string) broker.MutationRef {
	return broker.MutationRef{Tenant: firmA, AgentID: agent, OperationID: operation}
}

// writes is an Apply that makes an effect of that name and moves a revision.
func writes[TTx any](b *bench[TTx], name string) func(context.Context, TTx) (contract.Receipt, error) {
	return func(ctx context.Context, tx TTx) (contract.Receipt, error) {
		b.calls.Add(1)
		return contract.Receipt{Result: contract.ResultApplied, Before: 6, After: 7}, b.Effect(ctx, tx, name)
	}
}

// invokes is an Invoke that returns r and err.
func invokes[TTx any](b *bench[TTx], r contract.Receipt, err error) func(context.Context, broker.Call) (contract.Receipt, error) {
	return func(context.Context, broker.Call) (contract.Receipt, error) {
		b.calls.Add(1)
		return r, err
	}
}

var applied = contract.Receipt{Result: contract.ResultApplied, Ref: "call/1"}

// both are a mutation with its effect in the transaction, and one with it outside.
func both[TTx any](b *bench[TTx]) map[string]broker.Mutation[TTx] {
	in, out := mutation[TTx]("in"), mutation[TTx]("out")
	in.Apply, out.Invoke = writes(b, "in"), invokes(b, applied, nil)
	return map[string]broker.Mutation[TTx]{"in": in, "out": out}
}

// mutate carries out m and requires a receipt with this result.
func (b *bench[TTx]) mutate(m broker.Mutation[TTx], want contract.ResultCode) contract.Receipt {
	b.Helper()
	r, err := b.Mutate(b.ctx, m)
	require.NoError(b, err)
	require.Equal(b, want, r.Result)
	return r
}

// missing requires that nothing is recorded of an operation.
func (b *bench[TTx]) missing(operation string) {
	b.Helper()
	_, err := b.QueryMutation(b.ctx, ref(operation))
	require.ErrorIs(b, err, broker.ErrNoMutation)
}

func mutationReplays[TTx any](b *bench[TTx]) {
	for name, m := range both(b) {
		before := b.calls.Load()
		first := b.mutate(m, contract.ResultApplied)
		require.NoError(b, first.Validate())
		assert.Equal(b, m.Meta.OperationID, first.OperationID)
		assert.Equal(b, m.Digest, first.Digest)
		assert.NotZero(b, first.RecordedAt)
		for range 2 {
			again := b.mutate(m, contract.ResultApplied)
			assert.True(b, again.Replayed)
			again.Replayed = false
			assert.Equal(b, first, again)
		}
		st, err := b.QueryMutation(b.ctx, ref(name))
		require.NoError(b, err)
		assert.True(b, st.Receipt.Replayed)
		assert.Equal(b, first.RecordedAt, st.Receipt.RecordedAt)
		assert.False(b, st.Running)
		assert.Equal(b, before+1, b.calls.Load(), "one run")
	}
	assert.Equal(b, 1, b.effects("in"))
}

func mutationConflicts[TTx any](b *bench[TTx]) {
	other := contract.NewContent("ExecuteAuthorized").Text("number", "2").Digest()
	refused := func(m broker.Mutation[TTx]) {
		b.Helper()
		for _, change := range []func(*broker.Mutation[TTx]){
			func(m *broker.Mutation[TTx]) { m.Digest = other },
			func(m *broker.Mutation[TTx]) { m.Meta.IdempotencyKey = "another key" },
			func(m *broker.Mutation[TTx]) { m.Method.Name = "/agent.v1.AgentService/Execute" },
		} {
			second := m
			change(&second)
			_, err := b.Mutate(b.ctx, second)
			conflict, ok := errors.AsType[*contract.ConflictError](err)
			require.True(b, ok, "%v", err)
			assert.Equal(b, contract.Aborted, conflict.Failure.Code)
			require.ErrorIs(b, err, contract.ErrKeyReused)
		}
	}
	for name, m := range both(b) {
		first := b.mutate(m, contract.ResultApplied)
		refused(m)
		st, err := b.QueryMutation(b.ctx, ref(name))
		require.NoError(b, err)
		st.Receipt.Replayed = false
		assert.Equal(b, first, st.Receipt, "the first one is unchanged")
	}
	running := mutation[TTx]("running")
	running.Invoke = func(context.Context, broker.Call) (contract.Receipt, error) {
		refused(running) // and not "in progress": the conflict wins
		return applied, nil
	}
	b.mutate(running, contract.ResultApplied)
}

func unknownBeforeEffect[TTx any](b *bench[TTx]) {
	m := mutation[TTx]("op")
	var call broker.Call
	m.Invoke = func(_ context.Context, c broker.Call) (contract.Receipt, error) {
		b.calls.Add(1)
		call = c
		st, err := b.QueryMutation(b.ctx, ref("op"))
		require.NoError(b, err)
		assert.Equal(b, contract.ResultUnknown, st.Receipt.Result)
		assert.True(b, st.Running)
		again := b.mutate(m, contract.ResultUnknown)
		assert.True(b, again.Replayed, "at once, and without another run")
		require.ErrorIs(b, again.Err(), contract.ErrOutcomeUnknown)
		_, err = b.ResolveMutation(b.ctx, ref("op"), "on-call", b.noReader)
		require.ErrorIs(b, err, contract.ErrInProgress)
		return applied, nil
	}
	b.mutate(m, contract.ResultApplied)
	assert.EqualValues(b, 1, b.calls.Load())
	assert.Equal(b, ref("op"), call.MutationRef)
	assert.Equal(b, m.Digest, call.Digest)
	assert.Positive(b, call.Fence)
	assert.NotZero(b, call.Key)
}

// noReader fails the test when it is called.
func (b *bench[TTx]) noReader(context.Context, broker.Call) (contract.Receipt, error) {
	b.Error("the reader must not be called")
	return contract.Receipt{}, nil
}

func unknownUntilEvidence[TTx any](b *bench[TTx]) {
	for name, err := range map[string]error{
		"plain":    errors.New("connection reset"),
		"definite": broker.NotApplied(errors.New("refused")),
		"failure":  contract.ErrDenied,
	} {
		m := mutation[TTx](name)
		m.Invoke = invokes(b, applied, err)
		r := b.mutate(m, contract.ResultUnknown)
		assert.Contains(b, r.Detail, err.Error())
		b.mutate(m, contract.ResultUnknown)
		b.settlesByEvidence(name)
		b.mutate(m, contract.ResultApplied)
	}
	m := mutation[TTx]("panic")
	m.Invoke = func(context.Context, broker.Call) (contract.Receipt, error) { panic("adapter") }
	b.mutate(m, contract.ResultUnknown)
	m = mutation[TTx]("no evidence")
	m.Invoke = invokes(b, contract.Receipt{Result: contract.ResultApplied}, nil)
	b.mutate(m, contract.ResultUnknown)
	assert.EqualValues(b, 4, b.calls.Load(), "each once")
}

// settlesByEvidence resolves an unknown operation: nothing, an error and what may not stand leave it; a verdict never flips.
func (b *bench[TTx]) settlesByEvidence(operation string) {
	b.Helper()
	reads := func(r contract.Receipt, err error) broker.EvidenceReader {
		return func(context.Context, broker.Call) (contract.Receipt, error) { return r, err }
	}
	for _, nothing := range []broker.EvidenceReader{reads(contract.Receipt{}, nil), reads(applied, errors.New("the register is down"))} {
		r, err := b.ResolveMutation(b.ctx, ref(operation), "on-call", nothing)
		require.NoError(b, err)
		assert.Equal(b, contract.ResultUnknown, r.Result)
	}
	_, err := b.ResolveMutation(b.ctx, ref(operation), "on-call", reads(contract.Receipt{Result: contract.ResultNotApplied}, nil))
	require.ErrorIs(b, err, contract.ErrInvalid, "on no evidence")
	_, err = b.ResolveMutation(b.ctx, ref(operation), "on-call", reads(contract.Receipt{Result: contract.ResultAccepted}, nil))
	require.ErrorIs(b, err, contract.ErrNotAdvanced)
	r, err := b.ResolveMutation(b.ctx, ref(operation), "on-call", reads(applied, nil))
	require.NoError(b, err)
	assert.True(b, r.Applied())
	assert.Equal(b, "on-call", r.By)
	again, err := b.ResolveMutation(b.ctx, ref(operation), "somebody else", b.noReader)
	require.NoError(b, err)
	assert.Equal(b, "on-call", again.By)
}

// mutationResolversRead has one ResolveMutation overtake another whose reader is at work.
func mutationResolversRead[TTx any](b *bench[TTx]) {
	m := mutation[TTx]("op")
	m.Invoke = invokes(b, applied, errors.New("reset"))
	b.mutate(m, contract.ResultUnknown)
	var slow, quick int64
	_, err := b.ResolveMutation(b.ctx, ref("op"), "slow", func(_ context.Context, c broker.Call) (contract.Receipt, error) {
		slow = c.Fence
		_, err := b.ResolveMutation(b.ctx, ref("op"), "quick", func(_ context.Context, c broker.Call) (contract.Receipt, error) {
			quick = c.Fence
			return applied, nil
		})
		assert.NoError(b, err)
		return contract.Receipt{Result: contract.ResultNotApplied, Detail: "not there yet"}, nil
	})
	require.ErrorIs(b, err, contract.ErrFenced)
	assert.Greater(b, quick, slow)
	st, err := b.QueryMutation(b.ctx, ref("op"))
	require.NoError(b, err)
	assert.Equal(b, "quick", st.Receipt.By)
}

func mutationBadRequests[TTx any](b *bench[TTx]) {
	for name, change := range map[string]func(*broker.Mutation[TTx]){
		"no operation id":  func(m *broker.Mutation[TTx]) { m.Meta.OperationID = "" },
		"no key":           func(m *broker.Mutation[TTx]) { m.Meta.IdempotencyKey = "" },
		"no tenant":        func(m *broker.Mutation[TTx]) { m.Tenant = "" },
		"no agent":         func(m *broker.Mutation[TTx]) { m.AgentID = "" },
		"no method":        func(m *broker.Mutation[TTx]) { m.Method.Name = "" },
		"a read":           func(m *broker.Mutation[TTx]) { m.Method.ReadOnly = true },
		"a redelivered":    func(m *broker.Mutation[TTx]) { m.Method.Redelivered = true },
		"no effect":        func(m *broker.Mutation[TTx]) { m.Apply = nil },
		"an empty kind":    func(m *broker.Mutation[TTx]) { m.Identities = []broker.Identity{{Value: "e-1"}} },
		"too many":         func(m *broker.Mutation[TTx]) { m.Identities = make([]broker.Identity, broker.MaxIdentities+1) },
		"a control in key": func(m *broker.Mutation[TTx]) { m.Meta.IdempotencyKey = "a\nb" },
	} {
		m := mutation[TTx]("op")
		m.Apply = writes(b, "bad")
		change(&m)
		_, err := b.Mutate(b.ctx, m)
		require.ErrorIs(b, err, contract.ErrInvalid, name)
	}
	m := mutation[TTx]("op")
	m.Apply, m.Meta.AgentID = writes(b, "bad"), "agent-2"
	_, err := b.Mutate(b.ctx, m)
	require.ErrorIs(b, err, contract.ErrDenied, "self-reported")
	b.missing("op")
	assert.Zero(b, b.effects("bad"))
}

func agentsAreApart[TTx any](b *bench[TTx]) {
	mine, yours := mutation[TTx]("op"), mutation[TTx]("op")
	yours.AgentID = "agent-2"
	yours.Digest[0]++
	theirs := mutation[TTx]("op")
	theirs.Tenant = firmB
	for _, m := range []*broker.Mutation[TTx]{&mine, &yours, &theirs} {
		m.Apply = writes(b, "op")
		assert.False(b, b.mutate(*m, contract.ResultApplied).Replayed)
	}
	assert.Equal(b, 3, b.effects("op"))
	_, err := b.QueryMutation(b.ctx, broker.MutationRef{Tenant: firmB, AgentID: "agent-2", OperationID: "op"})
	require.ErrorIs(b, err, broker.ErrNoMutation)
}

func identities[TTx any](b *bench[TTx]) {
	first := mutation[TTx]("first")
	first.Identities = []broker.Identity{{Kind: "permit", Value: "p-1"}, {Kind: "execution", Value: "e-1"}}
	first.Apply = writes(b, "first")
	b.mutate(first, contract.ResultApplied)
	assert.True(b, b.mutate(first, contract.ResultApplied).Replayed)
	for name, taken := range map[string][]broker.Identity{
		"same execution, other permit": {{Kind: "execution", Value: "e-1"}, {Kind: "permit", Value: "p-2"}},
		"same permit, other execution": {{Kind: "execution", Value: "e-2"}, {Kind: "permit", Value: "p-1"}},
		"both":                         {{Kind: "execution", Value: "e-1"}, {Kind: "permit", Value: "p-1"}},
	} {
		second := mutation[TTx](name)
		second.Identities, second.Apply = taken, writes(b, "second")
		_, err := b.Mutate(b.ctx, second)
		require.ErrorIs(b, err, contract.ErrSecondOperation, name)
		b.missing(name)
	}
	assert.Zero(b, b.effects("second"))
	third := mutation[TTx]("third")
	third.Identities, third.Apply = []broker.Identity{{Kind: "execution", Value: "e-2"}, {Kind: "permit", Value: "p-2"}}, writes(b, "third")
	b.mutate(third, contract.ResultApplied)
	st, err := b.QueryMutation(b.ctx, broker.MutationRef{Tenant: firmA, Identity: broker.Identity{Kind: "execution", Value: "e-1"}})
	require.NoError(b, err)
	assert.Equal(b, ref("first"), st.MutationRef)
	assert.True(b, st.Receipt.Applied())
}

func refusalsAreStored[TTx any](b *bench[TTx]) {
	m := mutation[TTx]("decision")
	m.Identities = []broker.Identity{{Kind: "execution", Value: "e-1"}}
	m.Apply = func(context.Context, TTx) (contract.Receipt, error) {
		b.calls.Add(1)
		return contract.Receipt{Result: contract.ResultRefused, Failure: contract.ErrDenied}, nil
	}
	m.Invoke = func(context.Context, broker.Call) (contract.Receipt, error) {
		b.Error("a refused decision is never sent")
		return contract.Receipt{}, nil
	}
	for range 2 {
		r := b.mutate(m, contract.ResultRefused)
		require.ErrorIs(b, r.Err(), contract.ErrDenied)
	}
	assert.EqualValues(b, 1, b.calls.Load())
	again := mutation[TTx]("another decision")
	again.Identities, again.Apply = m.Identities, writes(b, "decision")
	_, err := b.Mutate(b.ctx, again)
	require.ErrorIs(b, err, contract.ErrSecondOperation, "one decision for ever")
}

func guardComesFirst[TTx any](b *bench[TTx]) {
	fenced := &contract.Failure{Code: contract.Aborted, Reason: "test.epoch_fenced", Effect: contract.EffectNone, Current: 9, Message: "fenced"}
	var guard error
	for name, m := range both(b) {
		m.Guard = func(context.Context, TTx) error { return guard }
		guard = fenced
		_, err := b.Mutate(b.ctx, m)
		require.ErrorIs(b, err, fenced)
		b.missing(name)
		guard = nil
		b.mutate(m, contract.ResultApplied)
		guard = fenced
		_, err = b.Mutate(b.ctx, m)
		require.ErrorIs(b, err, fenced, "and not the receipt")
		m.Digest[0]++
		_, err = b.Mutate(b.ctx, m)
		require.ErrorIs(b, err, fenced, "and not the conflict")
		guard = errors.New("cannot read the fence")
		_, err = b.Mutate(b.ctx, m)
		f, ok := contract.FailureOf(err)
		require.True(b, ok)
		assert.False(b, f.KnownNoEffect(), "the first request's effect is there")
	}
	assert.EqualValues(b, 2, b.calls.Load())
	assert.Equal(b, 1, b.effects("in"))
}

func acceptedAdvances[TTx any](b *bench[TTx]) {
	m := mutation[TTx]("close")
	m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
		return contract.Receipt{Result: contract.ResultAccepted, Before: 3, After: 4}, b.Effect(ctx, tx, "close")
	}
	r := b.mutate(m, contract.ResultAccepted)
	require.ErrorIs(b, r.Err(), contract.ErrOutcomeUnknown, "accepted is not applied")
	open, err := b.ListUnresolvedMutations(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(b, err)
	require.Len(b, open, 1)
	assert.Equal(b, contract.ResultAccepted, open[0].Result)
	assert.Equal(b, ref("close"), open[0].MutationRef)
	operations, err := b.ListUnresolved(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(b, err)
	assert.Empty(b, operations, "mutations are listed apart")
	drained := contract.Receipt{Result: contract.ResultApplied, Before: 3, After: 4, Barrier: &contract.Barrier{ID: "b-1"}}
	for range 2 {
		r, err = b.ResolveMutation(b.ctx, ref("close"), "drain",
			func(context.Context, broker.Call) (contract.Receipt, error) { return drained, nil })
		require.NoError(b, err)
		assert.Equal(b, "b-1", r.Barrier.ID)
	}
	b.mutate(m, contract.ResultApplied)
	open, err = b.ListUnresolvedMutations(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(b, err)
	assert.Empty(b, open)
	assert.Equal(b, 1, b.effects("close"))
}

func refusalsLeaveNothing[TTx any](b *bench[TTx]) {
	for name, fail := range map[string]func() (contract.Receipt, error){
		"an error":            func() (contract.Receipt, error) { return applied, errors.New("no") },
		"a failure":           func() (contract.Receipt, error) { return applied, contract.ErrStale },
		"a panic":             func() (contract.Receipt, error) { panic("adapter") },
		"no receipt":          func() (contract.Receipt, error) { return contract.Receipt{}, nil },
		"applied, no effect":  func() (contract.Receipt, error) { return contract.Receipt{Result: contract.ResultApplied}, nil },
		"applied and failure": func() (contract.Receipt, error) { r := applied; r.Failure = contract.ErrStale; return r, nil },
	} {
		m := mutation[TTx](name)
		m.Identities = []broker.Identity{{Kind: "execution", Value: name}}
		m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
			require.NoError(b, b.Effect(ctx, tx, name))
			return fail()
		}
		_, err := b.Mutate(b.ctx, m)
		f, ok := contract.FailureOf(err)
		require.True(b, ok, "%s: %v", name, err)
		assert.True(b, f.KnownNoEffect(), name)
		b.missing(name)
		_, err = b.QueryMutation(b.ctx, broker.MutationRef{Tenant: firmA, Identity: m.Identities[0]})
		require.ErrorIs(b, err, broker.ErrNoMutation)
		assert.Zero(b, b.effects(name), name)
		m.Apply = writes(b, name)
		b.mutate(m, contract.ResultApplied)
	}
}

func concurrentMutations[TTx any](b *bench[TTx]) {
	for name, m := range both(b) {
		m.Identities = []broker.Identity{{Kind: "execution", Value: name}, {Kind: "permit", Value: name}}
		before := b.calls.Load()
		var wg sync.WaitGroup
		var fresh atomic.Int32
		for range 25 {
			wg.Go(func() {
				r, err := b.Mutate(b.ctx, m)
				if err != nil { // on a loaded machine a store with one writer may be busy with the others for longer than the lock timeout
					assert.True(b, errors.Is(err, contract.ErrInProgress) || errors.Is(err, store.ErrBusy), "%v", err)
					return
				}
				if !r.Replayed {
					fresh.Add(1)
				}
				assert.Contains(b, []contract.ResultCode{contract.ResultApplied, contract.ResultUnknown}, r.Result)
			})
		}
		wg.Wait()
		assert.Equal(b, before+1, b.calls.Load(), "one run")
		assert.EqualValues(b, 1, fresh.Load())
		b.mutate(m, contract.ResultApplied)
	}
}

func sealed[TTx any](b *bench[TTx]) {
	execution := broker.Identity{Kind: "execution", Value: "e-9"}
	late, other := mutation[TTx]("late"), mutation[TTx]("other")
	late.Invoke, other.Invoke = invokes(b, applied, nil), invokes(b, applied, nil)
	other.Identities = []broker.Identity{execution}
	for _, r := range []broker.MutationRef{ref("late"), {Tenant: firmA, Identity: execution}} {
		_, err := b.QueryMutation(b.ctx, r)
		require.ErrorIs(b, err, broker.ErrNoMutation)
		f, _ := contract.FailureOf(err)
		assert.Equal(b, contract.NotFound, f.Code)
		assert.False(b, f.KnownNoEffect(), "it may still be on its way")
		for range 2 {
			_, err = b.SealMutation(b.ctx, r, "on-call")
			require.ErrorIs(b, err, contract.ErrSealed)
		}
		_, err = b.QueryMutation(b.ctx, r)
		require.ErrorIs(b, err, contract.ErrSealed)
	}
	for _, m := range []broker.Mutation[TTx]{late, other} {
		_, err := b.Mutate(b.ctx, m)
		require.ErrorIs(b, err, contract.ErrSealed)
	}
	b.missing("other")
	assert.Zero(b, b.calls.Load())
	done := mutation[TTx]("done")
	done.Invoke = invokes(b, applied, nil)
	b.mutate(done, contract.ResultApplied)
	st, err := b.SealMutation(b.ctx, ref("done"), "on-call")
	require.NoError(b, err)
	assert.True(b, st.Receipt.Applied(), "what is recorded is not changed")
}

// neverCameBack leaves a mutation as a process does that was killed while it invoked.
func neverCameBack[TTx any](b *bench[TTx]) {
	h := b.Harness
	s := spy(&h)
	s.complete = func(store.CompleteParams, func() error) error { return errLost }
	dead := newBench(b.T, h, b.mode, &broker.Config{ReplayWait: -1, Lease: expiry, StoreTimeout: time.Second})
	m := mutation[TTx]("op")
	m.Invoke = invokes(b, applied, nil)
	r, err := dead.Mutate(b.ctx, m)
	require.NoError(b, err)
	assert.Equal(b, contract.ResultUnknown, r.Result, "not recorded, so a later query could not tell it")
	b.mutate(m, contract.ResultUnknown)
	b.Advance(expiry)
	b.mutate(m, contract.ResultUnknown)
	assert.EqualValues(b, 1, b.calls.Load(), "a crash never leads to another run")

	open, err := b.ListUnresolvedMutations(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(b, err)
	require.Len(b, open, 1)
	var fence int64
	r, err = b.ResolveMutation(b.ctx, ref("op"), "on-call", func(_ context.Context, c broker.Call) (contract.Receipt, error) {
		fence = c.Fence
		return contract.Receipt{Result: contract.ResultNotApplied, Detail: "the adapter's ledger has no such call"}, nil
	})
	require.NoError(b, err)
	assert.Equal(b, contract.ResultNotApplied, r.Result)
	assert.EqualValues(b, 2, fence, "raised")
	b.mutate(m, contract.ResultNotApplied)
}

// A confirmation's calls and a mutation's do not see each other's keys.
func keysAreApart[TTx any](b *bench[TTx]) {
	m := mutation[TTx]("op")
	var key [16]byte
	m.Invoke = func(_ context.Context, c broker.Call) (contract.Receipt, error) {
		key = c.Key
		return contract.Receipt{}, errors.New("lost")
	}
	b.mutate(m, contract.ResultUnknown)
	_, err := b.Lookup(b.ctx, firmA, key)
	require.ErrorIs(b, err, contract.ErrNotMinted)
	_, err = b.Cancel(b.ctx, firmA, key)
	require.ErrorIs(b, err, contract.ErrNotMinted)
	_, err = b.Resolve(b.ctx, broker.Resolution{Tenant: firmA, Key: key, By: "on-call"}, nil)
	require.ErrorIs(b, err, contract.ErrNotMinted)
	c := b.propose("a")
	c.IdempotencyKey = key
	for _, mode := range everyMode {
		open := b.with(broker.Config{AcceptUnmintedKeys: true, ReplayWait: -1})
		open.mode = mode
		_, err = open.confirm(request(c), b.never)
		require.ErrorIs(b, err, contract.ErrKeyReused, mode)
	}
}

// mutationCases are run on every store.
func mutationCases[TTx any]() map[string]func(*bench[TTx]) {
	return map[string]func(*bench[TTx]){
		"R26 R25 R22 a repeated request gets the stored receipt":     mutationReplays[TTx],
		"R27 R28 R32 R24 other content and other keys conflict":      mutationConflicts[TTx],
		"R60 R61 R29 UNKNOWN is committed before the effect":         unknownBeforeEffect[TTx],
		"R69 R23 UNKNOWN until evidence comes":                       unknownUntilEvidence[TTx],
		"R69 no two readers of a mutation are told the same fence":   mutationResolversRead[TTx],
		"R30 R115 bad requests leave nothing":                        mutationBadRequests[TTx],
		"R31 agents and tenants are apart":                           agentsAreApart[TTx],
		"R53 R54 R62 R50 what belongs to one operation":              identities[TTx],
		"R58 R59 a refusal that is decided is stored":                refusalsAreStored[TTx],
		"R121 R118 the guard comes before the receipt":               guardComesFirst[TTx],
		"R19 R22 R48 R20 ACCEPTED advances by evidence":              acceptedAdvances[TTx],
		"R20 R2 R23 refusals leave no claim and no effect":           refusalsLeaveNothing[TTx],
		"R29 25 concurrent requests run once":                        concurrentMutations[TTx],
		"R110 R120 R14 a seal keeps a late request from running":     sealed[TTx],
		"R33 R55 a process that never came back leaves UNKNOWN":      neverCameBack[TTx],
		"R24 S11 confirmations and mutations have keys of their own": keysAreApart[TTx],
	}
}

// runMutations runs every case of a mutation and of a fact on one store.
func runMutations[TTx any](t *testing.T, harness func(*testing.T) storetest.Harness[TTx]) {
	for name, fn := range mutationCases[TTx]() {
		t.Run("Mutate/"+name, func(t *testing.T) {
			t.Parallel()
			fn(newBench(t, harness(t), "Mutate", nil))
		})
	}
	for name, fn := range factCases[TTx]() {
		t.Run("Facts/"+name, func(t *testing.T) {
			t.Parallel()
			fn(newBench(t, harness(t), "Facts", nil))
		})
	}
}
