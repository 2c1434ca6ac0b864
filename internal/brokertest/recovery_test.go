package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

func resolution(c contract.OperationConfirmation) broker.Resolution {
	return broker.Resolution{Tenant: firmA, Key: c.IdempotencyKey, By: "on-call"}
}

// reader answers with a verdict per item id and counts its calls.
func reader(calls *atomic.Int32, verdicts map[string]broker.Verdict) broker.StatusReader {
	return func(_ context.Context, it broker.Item) (broker.Verdict, error) {
		calls.Add(1)
		return verdicts[it.ID], nil
	}
}

func resolveReads[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b", "c")
	var reads atomic.Int32
	read := reader(&reads, map[string]broker.Verdict{
		"a": broker.FoundApplied("forum/1", "it is in the register"),
		"b": broker.FoundAbsent("it is not in the register"),
		"c": broker.FoundAbsent("and the register refuses it from now on").Final(),
	})
	_, err := b.Resolve(b.ctx, resolution(c), read)
	require.ErrorIs(b, err, contract.ErrNotConfirmed)
	b.crashed(c, expiry, "")
	_, err = b.Resolve(b.ctx, resolution(c), read)
	require.ErrorIs(b, err, contract.ErrInProgress, "within the lease")
	assert.Zero(b, reads.Load())
	b.Advance(expiry)

	res, err := b.Resolve(b.ctx, resolution(c), read)
	require.NoError(b, err)
	assert.Equal(b, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Failed}, states(res))
	assert.Equal(b, contract.OperationItemOutcome{ItemID: marked("a"), State: contract.Applied, Ref: "forum/1", Reason: contract.ReasonFoundApplied,
		Detail: "it is in the register", By: "on-call"}, res.Outcomes[0])
	assert.True(b, res.Outcomes[1].Provisional)
	assert.False(b, res.Outcomes[2].Provisional)

	for range 2 {
		again, err := b.Resolve(b.ctx, resolution(c), read)
		require.NoError(b, err)
		assert.Equal(b, res.Outcomes, again.Outcomes, "a verdict never flips")
		again, err = b.confirm(request(c), b.never)
		require.NoError(b, err)
		assert.True(b, again.Replayed)
		assert.Equal(b, res.Outcomes, again.Outcomes)
	}
	assert.EqualValues(b, 3, reads.Load(), "each item was read once")
	assert.Zero(b, b.calls.Load())
}

func resolveAgain[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b")
	res, err := b.confirm(request(c), func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
		return broker.Applied(it.ID), map[string]error{"b": errors.New("connection reset")}[it.ID]
	})
	require.NoError(b, err)
	require.NotNil(b, res.Recovery(), "completed, but ambiguous")
	var reads atomic.Int32
	for _, verdict := range []broker.Verdict{broker.StillUnknown("the register is down"), {}} {
		res, err = b.Resolve(b.ctx, resolution(c), reader(&reads, map[string]broker.Verdict{"b": verdict}))
		require.NoError(b, err)
		assert.Equal(b, []contract.OutcomeState{contract.Applied, contract.Ambiguous}, states(res))
		assert.Equal(b, contract.ReasonStillUnknown, res.Outcomes[1].Reason)
	}
	fence := int64(0)
	res, err = b.Resolve(b.ctx, resolution(c), func(_ context.Context, it broker.Item) (broker.Verdict, error) {
		fence = it.Fence
		return broker.FoundApplied("forum/2", "found"), nil
	})
	require.NoError(b, err)
	assert.EqualValues(b, 6, fence, "raised by each Resolve, before it reads and when it records")
	assert.Equal(b, contract.Tally{Applied: 2}, res.Tally())
	require.NoError(b, res.Err())
	again, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.Equal(b, res.Outcomes, again.Outcomes)
	page, err := b.ListUnresolved(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(b, err)
	assert.Empty(b, page)
}

func readersFail[TTx any](b *bench[TTx]) {
	c := b.propose("error", "panic", "silent", "leaves")
	b.crashed(c, short, "")
	b.Advance(2 * short)
	ctx, leave := context.WithCancel(b.ctx)
	res, err := b.Resolve(ctx, resolution(c), func(ctx context.Context, it broker.Item) (broker.Verdict, error) {
		switch it.ID {
		case "error":
			return broker.FoundApplied("not told", ""), errors.New("the register is down")
		case "panic":
			panic("boom")
		case "leaves":
			leave()
			<-ctx.Done()
		}
		return broker.Verdict{}, nil
	})
	require.NoError(b, err)
	for _, o := range res.Outcomes {
		assert.Equal(b, contract.Ambiguous, o.State)
		assert.Equal(b, contract.ReasonStillUnknown, o.Reason)
	}
	_, err = b.Resolve(b.ctx, resolution(c), nil)
	require.NoError(b, err, "a reader is not required where none helps")
	for _, bad := range []broker.Resolution{{Tenant: firmA, Key: c.IdempotencyKey}, {Key: c.IdempotencyKey, By: "x"}} {
		_, err = b.Resolve(b.ctx, bad, nil)
		require.ErrorIs(b, err, contract.ErrInvalid)
	}
	never := resolution(c)
	never.Key = uuid.New()
	_, err = b.Resolve(b.ctx, never, nil)
	require.ErrorIs(b, err, contract.ErrNotMinted)
}

func resolversAgree[TTx any](b *bench[TTx]) {
	c := b.propose("a")
	b.crashed(c, short, "")
	b.Advance(2 * short)
	const n = 8
	var reads atomic.Int32
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			_, errs[i] = b.Resolve(b.ctx, resolution(c), func(context.Context, broker.Item) (broker.Verdict, error) {
				if reads.Add(1)%2 == 0 {
					return broker.FoundAbsent("even"), nil
				}
				return broker.FoundApplied("", "odd"), nil
			})
		})
	}
	wg.Wait()
	assert.EqualValues(b, 1, reads.Load(), "one of them holds the key")
	for _, err := range errs {
		if err != nil {
			require.ErrorIs(b, err, contract.ErrInProgress)
		}
	}
	res, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.Equal(b, contract.Tally{Applied: 1}, res.Tally())
}

// resolversRead has one Resolve overtake another whose reader is at work. What a reader is told is stored before, so that a target
// that keeps the highest fence refuses the one that was overtaken.
func resolversRead[TTx any](b *bench[TTx]) {
	c := b.propose("a")
	_, err := b.confirm(request(c), func(context.Context, broker.Item, func(string) error) (broker.Outcome, error) {
		return broker.Outcome{}, errors.New("reset")
	})
	require.NoError(b, err)
	var slow, quick int64
	_, err = b.Resolve(b.ctx, resolution(c), func(_ context.Context, it broker.Item) (broker.Verdict, error) {
		slow = it.Fence
		_, err := b.Resolve(b.ctx, resolution(c), func(_ context.Context, it broker.Item) (broker.Verdict, error) {
			quick = it.Fence
			return broker.FoundApplied("", "quick"), nil
		})
		assert.NoError(b, err)
		return broker.FoundAbsent("slow"), nil
	})
	require.ErrorIs(b, err, contract.ErrFenced)
	assert.Greater(b, quick, slow)
	res, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.Equal(b, contract.Tally{Applied: 1}, res.Tally())
}

func listUnresolved[TTx any](b *bench[TTx]) {
	open := map[uuid.UUID]bool{}
	for range 5 {
		c := b.propose("a")
		b.crashed(c, short, "")
		open[c.IdempotencyKey] = false
		settled := b.propose("a")
		_, err := b.confirm(request(settled), apply)
		require.NoError(b, err)
	}
	running, half := b.propose("a"), b.propose("a")
	b.crashed(running, long, "")
	_, err := b.confirm(request(half), func(context.Context, broker.Item, func(string) error) (broker.Outcome, error) {
		return broker.Outcome{}, errors.New("reset")
	})
	require.NoError(b, err)
	open[half.IdempotencyKey] = true
	b.Advance(2 * short)

	var got []broker.UnresolvedKey
	for p := (broker.Page{Tenant: firmA, Limit: 2}); ; p.After = got[len(got)-1].Key {
		page, err := b.ListUnresolved(b.ctx, p)
		require.NoError(b, err)
		if len(page) == 0 {
			break
		}
		assert.LessOrEqual(b, len(page), 2)
		got = append(got, page...)
	}
	assert.Len(b, got, len(open))
	for i, u := range got {
		completed, known := open[u.Key]
		assert.True(b, known)
		assert.Equal(b, completed, u.Completed)
		assert.Greater(b, u.Age, time.Duration(0))
		assert.False(b, u.Contested)
		if i > 0 {
			assert.Greater(b, u.Key.String(), got[i-1].Key.String())
		}
	}
	page, err := b.ListUnresolved(b.ctx, broker.Page{Tenant: firmB})
	require.NoError(b, err)
	assert.Empty(b, page)
	_, err = b.ListUnresolved(b.ctx, broker.Page{Tenant: firmA, Limit: 1001})
	require.ErrorIs(b, err, contract.ErrInvalid)
}

func purgedNeverRuns[TTx any](b *bench[TTx]) {
	soon := b.with(broker.Config{ReplayWait: -1, PayloadRetention: short})
	done, open, brief := b.propose("a"), b.propose("a"), b.with(broker.Config{ProposalExpiry: 1}).propose("a")
	_, err := b.confirm(request(done), apply)
	require.NoError(b, err)
	b.crashed(open, short, "")
	keep, err := b.Purge(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(b, err)
	assert.Zero(b, keep, "within the default retention")
	b.Advance(3 * short)
	total := 0
	for {
		n, err := soon.Purge(b.ctx, broker.Page{Tenant: firmA, Limit: 1})
		require.NoError(b, err)
		if n == 0 {
			break
		}
		total += n
	}
	assert.Equal(b, 2, total, "the settled one and the expired one")

	res, err := b.confirm(request(done), b.never)
	assert.Equal(b, "pruned", broker.AnswerOf(res, err))
	require.ErrorIs(b, res.Err(), contract.ErrUnsettled, "nobody knows the details any more")
	_, err = b.confirm(request(otherContent(done)), b.never)
	require.ErrorIs(b, err, contract.ErrKeyReused, "the digest stays")
	_, err = b.confirm(request(brief), b.never)
	require.ErrorIs(b, err, contract.ErrExpired)
	st, err := b.Lookup(b.ctx, firmA, done.IdempotencyKey)
	require.NoError(b, err)
	assert.Equal(b, broker.Completed, st.Phase)
	assert.Empty(b, st.Confirmation.Items)
	res, err = b.confirm(request(open), b.never)
	require.NoError(b, err)
	assert.Len(b, res.Outcomes, 1, "what is unresolved keeps its payload")
	st, err = b.Lookup(b.ctx, firmA, open.IdempotencyKey)
	require.NoError(b, err)
	assert.Equal(b, open, st.Confirmation)
}

// perItemCrash stops between two items as a crash would: the first one was committed with its record.
func perItemCrash[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b")
	digest, err := contract.DigestOf(c.Proposal())
	require.NoError(b, err)
	p := store.ClaimParams{ID: lookupOf(c).ID, Digest: digest, Attempt: uuid.New(), Mode: store.ModePerItem, Lease: expiry}
	_, err = b.Store.Own().Claim(b.ctx, p)
	require.NoError(b, err)
	held := store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: 1}
	tx, _, err := b.Store.Begin(b.ctx, store.Opening{ID: p.ID, Hold: &held})
	require.NoError(b, err)
	require.NoError(b, b.Effect(b.ctx, tx, "a"))
	done := contract.OperationItemOutcome{ItemID: marked("a"), State: contract.Applied}
	require.NoError(b, b.Store.Commit(b.ctx, tx, store.Closing{Progress: &store.ProgressParams{Fenced: held, Done: marked("a"),
		Outcome: contract.EncodeOutcomes([]contract.OperationItemOutcome{done}), Lease: short}}))
	b.Advance(2 * short)

	res, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.Equal(b, []contract.OutcomeState{contract.Applied, contract.Ambiguous}, states(res), "the fence is not raised yet")
	res, err = b.Resolve(b.ctx, resolution(c), nil)
	require.NoError(b, err)
	assert.Equal(b, []contract.OutcomeState{contract.Applied, contract.Skipped}, states(res))
	assert.Equal(b, contract.ReasonNotCommitted, res.Outcomes[1].Reason)

	_, _, err = b.Store.Begin(b.ctx, store.Opening{ID: p.ID, Hold: &held})
	require.ErrorIs(b, err, store.ErrFenced, "an attempt that wakes up late writes nothing")
	assert.Equal(b, [2]int{1, 0}, [2]int{b.effects("a"), b.effects("b")})
}

func manyItems[TTx any](b *bench[TTx]) {
	var ids []string
	for i := range broker.MaxTxItems + 1 {
		ids = append(ids, fmt.Sprint("item-", i))
	}
	res, err := b.confirm(request(b.propose(ids...)), apply)
	require.NoError(b, err)
	assert.Equal(b, contract.Tally{Applied: len(ids)}, res.Tally())
	assert.Equal(b, 1, b.effects(ids[len(ids)-1]))
}

func atomicCallerLeaves[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b")
	ctx, leave := context.WithCancel(b.ctx)
	_, err := b.ExecuteAtomic(ctx, broker.TxRequest[TTx]{Request: request(c)}, func(ctx context.Context, tx TTx, it broker.Item) (broker.Outcome, error) {
		err := b.Effect(ctx, tx, it.ID)
		leave()
		return broker.Applied(it.ID), err
	})
	if err == nil { // memory does not look at the context: it was committed
		return
	}
	failure, ok := contract.FailureOf(err)
	require.True(b, ok)
	assert.True(b, failure.KnownNoEffect(), "%v", err)
	assert.Equal(b, broker.Proposed, b.phase(c))
	res, err := b.confirm(request(c), apply)
	require.NoError(b, err)
	assert.False(b, res.Replayed)
}
