package brokertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

func oneItemFails[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b", "c")
	res, err := b.confirm(request(c), func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
		out, err := apply(ctx, it, write)
		if it.ID == "b" {
			return out, broker.NotApplied(errors.New("the registry refused it")) // an error beats the outcome
		}
		return out, err
	})
	require.NoError(b, err)
	assert.Equal(b, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Applied}, states(res))
	assert.Equal(b, contract.Tally{Applied: 2, Failed: 1}, res.Tally())
	require.ErrorIs(b, res.Err(), contract.ErrUnsettled)
	if b.inDatabase() {
		assert.Equal(b, [3]int{1, 0, 1}, [3]int{b.effects("a"), b.effects("b"), b.effects("c")})
	}
	again, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.Equal(b, res.Outcomes, again.Outcomes)
}

func misbehaviour[TTx any](b *bench[TTx]) {
	c := b.propose("panic", "nil panic", "goexit", "silent", "good")
	res, err := b.confirm(request(c), func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
		out, err := apply(ctx, it, write)
		switch it.ID {
		case "panic":
			panic("boom")
		case "nil panic":
			panic(nil) //nolint:govet // on purpose
		case "goexit":
			runtime.Goexit()
		case "silent":
			return broker.Outcome{}, nil
		}
		return out, err
	})
	require.NoError(b, err)
	bad := contract.Ambiguous
	if b.inDatabase() {
		bad = contract.Failed
	}
	assert.Equal(b, []contract.OutcomeState{bad, bad, bad, bad, contract.Applied}, states(res))
	var reasons []contract.Reason
	for _, o := range res.Outcomes {
		reasons = append(reasons, o.Reason)
	}
	assert.Equal(b, []contract.Reason{contract.ReasonPanic, contract.ReasonPanic, contract.ReasonPanic, contract.ReasonNoOutcome, ""},
		reasons)
	if b.inDatabase() {
		assert.Equal(b, 0, b.effects("panic")+b.effects("nil panic")+b.effects("goexit")+b.effects("silent"))
		assert.Equal(b, 1, b.effects("good"))
	}
	_, err = b.confirm(request(c), b.never)
	require.NoError(b, err)
}

func itemIdentity[TTx any](b *bench[TTx]) {
	seen := map[uuid.UUID]string{}
	collect := func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
		assert.EqualValues(b, 1, it.Fence)
		assert.NotEqual(b, uuid.Nil, it.Attempt)
		assert.Equal(b, fresh, it.Expected)
		assert.Equal(b, firmA, it.Tenant)
		assert.NotEqual(b, it.OperationKey, it.IdempotencyKey)
		assert.Equal(b, "add_forum", it.Op)
		seen[it.IdempotencyKey] = it.ID
		return apply(ctx, it, write)
	}
	for range 2 {
		_, err := b.confirm(request(b.propose("a", "b")), collect)
		require.NoError(b, err)
	}
	assert.Len(b, seen, 4, "an item's key is its own")
}

func oddOutcomes[TTx any](b *bench[TTx]) {
	odd := map[string]string{
		"nul": "a\x00b", "bad utf-8": "a\xffb", "long": strings.Repeat("ü", 5000), "control": "a\x1b[31mb", "empty": "",
	}
	ids := []string{"nul", "bad utf-8", "long", "control", "empty"}
	c := b.propose(ids...)
	res, err := b.confirm(request(c), func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
		return broker.Applied(odd[it.ID]).WithDetail(odd[it.ID]), nil
	})
	require.NoError(b, err)
	assert.Equal(b, contract.Tally{Applied: 5}, res.Tally())
	again, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.Equal(b, res.Outcomes, again.Outcomes, "what is told first is what is told later")
	assert.LessOrEqual(b, len(res.Outcomes[2].Detail), contract.MaxDetail)
}

func externalErrors[TTx any](b *bench[TTx]) {
	own := &contract.Failure{Code: contract.Aborted, Reason: "registry.closed", Effect: contract.EffectNone}
	unread := &contract.InvalidError{Problem: "is not JSON"} // the target's answer
	cases := []struct {
		err    error
		state  contract.OutcomeState
		reason contract.Reason
	}{
		{errors.New("connection reset"), contract.Ambiguous, ""},
		{context.DeadlineExceeded, contract.Ambiguous, ""},
		{context.Canceled, contract.Ambiguous, ""},
		{broker.NotApplied(errors.New("refused")), contract.Failed, ""},
		{fmt.Errorf("wrapped: %w", broker.NotApplied(errors.New("refused"))), contract.Failed, ""},
		{errors.Join(broker.NotApplied(errors.New("refused")), errors.New("reset")), contract.Ambiguous, ""},
		{errors.Join(broker.NotApplied(errors.New("refused")), broker.NotApplied(errors.New("too"))), contract.Failed, ""},
		{errors.Join(broker.NotApplied(contract.ErrOutcomeUnknown), own), contract.Failed, contract.ErrOutcomeUnknown.Reason},
		{fmt.Errorf("read: %w", unread), contract.Ambiguous, contract.ReasonInvalid},
		{errors.Join(own, unread), contract.Ambiguous, "registry.closed"},
		{errors.Join(own, broker.NotApplied(unread)), contract.Failed, "registry.closed"},
		{own.With(unread), contract.Failed, "registry.closed"},
		{own, contract.Failed, "registry.closed"},
		{fmt.Errorf("call: %w", own), contract.Failed, "registry.closed"},
	}
	for _, rule := range contract.RetryTable() {
		state := contract.Failed
		if rule.Effect == contract.EffectUnknown {
			state = contract.Ambiguous
		}
		cases = append(cases, struct {
			err    error
			state  contract.OutcomeState
			reason contract.Reason
		}{&contract.Failure{Code: rule.Code}, state, contract.Reason(rule.Code)})
	}
	var ids []string
	for i := range cases {
		ids = append(ids, fmt.Sprintf("item-%02d", i))
	}
	res, err := b.confirm(request(b.propose(ids...)),
		func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
			return broker.Applied("not told"), cases[it.Index].err
		})
	require.NoError(b, err)
	for i, c := range cases {
		assert.Equal(b, c.state, res.Outcomes[i].State, "%v", c.err)
		assert.Equal(b, c.reason, res.Outcomes[i].Reason, "%v", c.err)
		assert.Empty(b, res.Outcomes[i].Ref)
	}
}

func callerLeaves[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b")
	ctx, leave := context.WithCancel(b.ctx)
	res, err := b.Execute(ctx, request(c), func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
		leave()
		return broker.Applied(it.ID), ctx.Err() // an executor's call is not cut short by it
	})
	require.NoError(b, err)
	assert.Equal(b, contract.Tally{Applied: 2}, res.Tally())
	again, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.Equal(b, res.Outcomes, again.Outcomes)

	gone := b.propose("a")
	_, err = b.Execute(ctx, request(gone), func(context.Context, broker.Item) (broker.Outcome, error) {
		b.Error("a caller that had left before the claim starts nothing")
		return broker.Outcome{}, nil
	})
	require.ErrorIs(b, err, context.Canceled)
	assert.Equal(b, broker.Proposed, b.phase(gone))
}

func executorHangs[TTx any](b *bench[TTx]) {
	quick := b.with(broker.Config{ReplayWait: -1, Lease: 2 * time.Second})
	release := make(chan struct{})
	defer close(release)
	c := b.propose("polite", "hangs", "good")
	res, err := quick.Execute(b.ctx, request(c), func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
		switch it.ID {
		case "polite":
			<-ctx.Done()
			return broker.Applied("late"), ctx.Err()
		case "hangs":
			<-release
		}
		return broker.Applied(it.ID), nil
	})
	require.NoError(b, err)
	assert.Equal(b, []contract.OutcomeState{contract.Ambiguous, contract.Ambiguous, contract.Applied}, states(res))
	assert.Equal(b, contract.ReasonTimeout, res.Outcomes[1].Reason)
}

func oneLease[TTx any](b *bench[TTx]) {
	quick := b.with(broker.Config{ReplayWait: -1, Lease: 200 * time.Millisecond, NoProgress: true})
	c := b.propose("slow", "too late")
	res, err := quick.Execute(b.ctx, request(c), func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
		require.Equal(b, "slow", it.ID)
		<-ctx.Done()
		return broker.Applied(it.ID), nil
	})
	require.NoError(b, err)
	assert.Equal(b, []contract.OutcomeState{contract.Applied, contract.Skipped}, states(res))
	assert.Equal(b, contract.ReasonNotStarted, res.Outcomes[1].Reason)
}

// progressSurvives stops between two items as a crash would: the first one's outcome is on record, the second one is
// known to have started.
func progressSurvives[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b", "c")
	b.crashed(c, long, "a") // until its progress, which a lease that is over would not let pass
	s, err := b.Store.Own().Lookup(b.ctx, lookupOf(c))
	require.NoError(b, err)
	held := store.Fenced{ID: lookupOf(c).ID, Attempt: s.Claim.Attempt, Fence: s.Claim.Fence}
	done := contract.OperationItemOutcome{ItemID: marked("a"), State: contract.Applied, Ref: "ref/a"}
	require.NoError(b, b.Store.Own().Progress(b.ctx, store.ProgressParams{Fenced: held, Done: marked("a"),
		Outcome: contract.EncodeOutcomes([]contract.OperationItemOutcome{done}), Next: marked("b"), Lease: short}))
	b.Advance(2 * short)
	res, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.Equal(b, []contract.OutcomeState{contract.Applied, contract.Ambiguous, contract.Ambiguous}, states(res))
	assert.Equal(b, done, res.Outcomes[0])
}

func lookupOf(c contract.OperationConfirmation) store.LookupParams {
	return store.LookupParams{ID: store.ID{Tenant: firmA, Key: c.IdempotencyKey}}
}

func doubleTapWaits[TTx any](b *bench[TTx]) {
	waiting := b.with(broker.Config{ReplayWait: 20 * time.Second})
	c := b.propose("a")
	started, release := make(chan struct{}), make(chan struct{})
	type answer struct {
		res *contract.OperationResult
		err error
	}
	first, second := make(chan answer, 1), make(chan answer, 1)
	go func() {
		res, err := waiting.confirm(request(c), func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
			close(started)
			<-release
			return apply(ctx, it, write)
		})
		first <- answer{res, err}
	}()
	<-started
	_, err := b.confirm(request(c), b.never) // configured not to wait
	require.ErrorIs(b, err, contract.ErrInProgress)
	go func() {
		res, err := waiting.confirm(request(c), b.never)
		second <- answer{res, err}
	}()
	ctx, leave := context.WithCancel(b.ctx)
	leave()
	_, err = waiting.Execute(ctx, request(c), func(context.Context, broker.Item) (broker.Outcome, error) { return broker.Outcome{}, nil })
	require.Error(b, err, "a waiting caller may leave")
	close(release)
	one, two := <-first, <-second
	require.NoError(b, one.err)
	require.NoError(b, two.err)
	assert.False(b, one.res.Replayed)
	assert.True(b, two.res.Replayed)
	assert.Equal(b, one.res.Outcomes, two.res.Outcomes)
	assert.EqualValues(b, 1, b.calls.Load())
}
