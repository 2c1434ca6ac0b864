package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

func replays[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b", "c")
	require.Equal(b, broker.Proposed, b.phase(c))
	first, err := b.confirm(request(c), apply)
	require.NoError(b, err)
	require.NoError(b, first.Err())
	assert.False(b, first.Replayed)
	assert.Equal(b, contract.Tally{Applied: 3}, first.Tally())

	second, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.True(b, second.Replayed)
	second.Replayed = false
	firstBytes, err := json.Marshal(first)
	require.NoError(b, err)
	secondBytes, err := json.Marshal(second)
	require.NoError(b, err)
	assert.Equal(b, string(firstBytes), string(secondBytes))
	assert.EqualValues(b, 3, b.calls.Load())
	assert.Equal(b, broker.Completed, b.phase(c))
	if b.inDatabase() {
		assert.Equal(b, 1, b.effects("a"))
	}
}

func moved() contract.CurrentSurfaceState {
	return contract.CurrentSurfaceState{SurfaceKey: fresh.SurfaceKey, ContractVersion: "v2"}
}

func staleIsRefused[TTx any](b *bench[TTx]) {
	for _, current := range []contract.CurrentSurfaceState{
		moved(), {SurfaceKey: "matter:8/forums", ContractVersion: "v1"}, {SurfaceKey: fresh.SurfaceKey}, {},
	} {
		c := b.propose("a")
		req := request(c)
		req.Current = current
		_, err := b.confirm(req, b.never)
		conflict, ok := errors.AsType[*contract.ConflictError](err)
		require.True(b, ok, "%v", err)
		assert.Equal(b, contract.ReasonStale, conflict.Failure.Reason)
		assert.Equal(b, contract.Reason("pramaan.agent_operation.stale"), conflict.Failure.Reason)
		assert.Equal(b, contract.DriftOf(c, current), conflict.Drift)
		require.ErrorIs(b, err, contract.ErrStale)
		assert.Equal(b, broker.Proposed, b.phase(c), "no claim may stand")

		_, err = b.confirm(request(c), apply)
		require.NoError(b, err, "the surface came back: the key is still free")
	}
}

func replayBeforeStale[TTx any](b *bench[TTx]) {
	c := b.propose("a")
	_, err := b.confirm(request(c), apply)
	require.NoError(b, err)
	req := request(c)
	req.Current = moved() // by the operation itself; the reply was lost
	res, err := b.confirm(req, b.never)
	require.NoError(b, err)
	assert.True(b, res.Replayed)
	assert.Equal(b, contract.Tally{Applied: 1}, res.Tally())
}

func crashedIsAmbiguous[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b")
	b.crashed(c, expiry, "")
	_, err := b.confirm(request(c), b.never)
	require.ErrorIs(b, err, contract.ErrInProgress, "within the lease")
	b.Advance(expiry)
	assert.Equal(b, broker.Unresolved, b.phase(c))
	for range 3 {
		res, err := b.confirm(request(c), b.never)
		require.NoError(b, err)
		assert.Equal(b, []contract.OutcomeState{contract.Ambiguous, contract.Ambiguous}, states(res))
		recovery := res.Recovery()
		require.NotNil(b, recovery)
		assert.Equal(b, c.IdempotencyKey, recovery.IdempotencyKey)
		require.ErrorIs(b, res.Err(), contract.ErrUnsettled)
		assert.Equal(b, "ambiguous", broker.AnswerOf(res, err))
	}
}

// otherContent is c with the parameters of its first item changed.
func otherContent(c contract.OperationConfirmation) contract.OperationConfirmation {
	c.Items = append([]contract.Item(nil), c.Items...)
	c.Items[0].Params = json.RawMessage(`{"name":"another"}`)
	return c
}

func otherContentConflicts[TTx any](b *bench[TTx]) {
	for name, prepare := range map[string]func(contract.OperationConfirmation){
		"proposed": func(contract.OperationConfirmation) {},
		"completed": func(c contract.OperationConfirmation) {
			_, err := b.confirm(request(c), apply)
			require.NoError(b, err)
		},
		"in progress": func(c contract.OperationConfirmation) { b.crashed(c, long, "") },
		"ambiguous": func(c contract.OperationConfirmation) {
			b.crashed(c, short, "")
			b.Advance(2 * short)
		},
		"cancelled": func(c contract.OperationConfirmation) {
			_, err := b.Cancel(b.ctx, firmA, c.IdempotencyKey)
			require.NoError(b, err)
		},
	} {
		c := b.propose("a")
		prepare(c)
		before := b.phase(c)
		for _, current := range []contract.CurrentSurfaceState{fresh, moved()} {
			req := request(otherContent(c))
			req.Current = current
			_, err := b.confirm(req, b.never)
			require.ErrorIs(b, err, contract.ErrKeyReused, name)
			conflict, ok := errors.AsType[*contract.ConflictError](err)
			require.True(b, ok)
			assert.Equal(b, contract.Aborted, conflict.Failure.Code)
		}
		assert.Equal(b, before, b.phase(c), "%s: the first content's key must stand as before", name)
	}
}

func unknownKeys[TTx any](b *bench[TTx]) {
	theirs := b.propose("a")
	never := theirs
	never.IdempotencyKey = uuid.New()
	foreign := request(theirs)
	foreign.Tenant = firmB
	_, unknownErr := b.confirm(request(never), b.never)
	_, foreignErr := b.confirm(foreign, b.never)
	require.ErrorIs(b, unknownErr, contract.ErrNotMinted)
	require.ErrorIs(b, foreignErr, contract.ErrNotMinted)
	assert.Equal(b, unknownErr, foreignErr, "a foreign key must be told exactly like an unknown one")

	_, err := b.confirm(request(theirs), apply) // and after it was executed
	require.NoError(b, err)
	_, foreignErr = b.confirm(foreign, b.never)
	assert.Equal(b, unknownErr, foreignErr)
	_, err = b.Lookup(b.ctx, firmB, theirs.IdempotencyKey)
	assert.Equal(b, unknownErr, err)
	_, err = b.Cancel(b.ctx, firmB, theirs.IdempotencyKey)
	assert.Equal(b, unknownErr, err)
}

func acceptedKeys[TTx any](b *bench[TTx]) {
	open := b.with(broker.Config{ReplayWait: -1, AcceptUnmintedKeys: true})
	c := b.propose("a")
	_, err := open.confirm(request(c), apply)
	require.NoError(b, err)
	foreign := request(c)
	foreign.Tenant = firmB
	res, err := open.confirm(foreign, apply)
	require.NoError(b, err, "firm B's first run of the same key string")
	assert.False(b, res.Replayed)
	assert.EqualValues(b, 2, b.calls.Load())
	res, err = open.confirm(foreign, b.never)
	require.NoError(b, err)
	assert.True(b, res.Replayed)

	st, err := open.Lookup(b.ctx, firmB, c.IdempotencyKey)
	require.NoError(b, err)
	assert.Equal(b, c, st.Confirmation, "the content of a key that was not proposed is stored with its claim")

	standing := b.propose("a") // a proposal of this firm binds also here
	_, err = open.confirm(request(otherContent(standing)), b.never)
	require.ErrorIs(b, err, contract.ErrKeyReused)
}

func expiredIsRefused[TTx any](b *bench[TTx]) {
	brief := b.with(broker.Config{ReplayWait: -1, ProposalExpiry: expiry})
	ran, missed := brief.propose("a"), brief.propose("a")
	_, err := b.confirm(request(ran), apply)
	require.NoError(b, err)
	b.Advance(expiry)
	for range 2 {
		_, err = b.confirm(request(missed), b.never)
		require.ErrorIs(b, err, contract.ErrExpired)
	}
	assert.Equal(b, broker.Expired, b.phase(missed))
	res, err := b.confirm(request(ran), b.never)
	require.NoError(b, err, "what was executed is still replayed")
	assert.True(b, res.Replayed)
}

func cancelledNeverRuns[TTx any](b *bench[TTx]) {
	c := b.propose("a", "b")
	for range 2 {
		res, err := b.Cancel(b.ctx, firmA, c.IdempotencyKey)
		require.NoError(b, err)
		assert.True(b, res.Cancelled())
		assert.Equal(b, contract.Tally{Skipped: 2}, res.Tally())
	}
	res, err := b.confirm(request(c), b.never)
	require.NoError(b, err)
	assert.True(b, res.Cancelled())
	require.ErrorIs(b, res.Err(), contract.ErrUnsettled)

	ran := b.propose("a")
	first, err := b.confirm(request(ran), apply)
	require.NoError(b, err)
	res, err = b.Cancel(b.ctx, firmA, ran.IdempotencyKey)
	require.NoError(b, err, "too late: it tells what happened")
	assert.Equal(b, first.Outcomes, res.Outcomes)

	running := b.propose("a")
	b.crashed(running, long, "")
	_, err = b.Cancel(b.ctx, firmA, running.IdempotencyKey)
	require.ErrorIs(b, err, contract.ErrInProgress)

	expired := b.with(broker.Config{ProposalExpiry: short}).propose("a")
	b.Advance(2 * short)
	res, err = b.Cancel(b.ctx, firmA, expired.IdempotencyKey)
	require.NoError(b, err)
	assert.True(b, res.Cancelled())
}

func authoriser[TTx any](b *bench[TTx]) {
	var asked []broker.Access
	allow := true
	guarded := b.with(broker.Config{ReplayWait: -1, PayloadRetention: 1, Authorize: func(_ context.Context, a broker.Access) error {
		asked = append(asked, a)
		if allow {
			return nil
		}
		return errors.New("the grant was revoked")
	}})
	c := b.propose("a")
	_, err := guarded.confirm(request(c), apply)
	require.NoError(b, err)
	allow = false
	_, err = guarded.confirm(request(c), b.never)
	require.ErrorIs(b, err, contract.ErrDenied, "also for a replay")
	assert.NotContains(b, err.Error(), "revoked")
	_, err = guarded.Lookup(b.ctx, firmA, c.IdempotencyKey)
	require.ErrorIs(b, err, contract.ErrDenied)
	_, err = guarded.Cancel(b.ctx, firmA, c.IdempotencyKey)
	require.ErrorIs(b, err, contract.ErrDenied)

	free, open := b.propose("a"), b.propose("a")
	_, err = guarded.confirm(request(free), b.never)
	require.ErrorIs(b, err, contract.ErrDenied)
	assert.Equal(b, broker.Proposed, b.phase(free), "no claim may stand")
	assert.Len(b, asked, 5, "asked once per call")
	assert.Equal(b, firmA, asked[0].Tenant)
	assert.Equal(b, c.IdempotencyKey, asked[0].Key)

	b.crashed(open, short, "")
	b.Advance(2 * short)
	asked = nil
	denied := func(method string, key uuid.UUID, err error) {
		b.Helper()
		require.ErrorIs(b, err, contract.ErrDenied, method)
		assert.Equal(b, []broker.Access{{Method: method, Tenant: firmA, Key: key}}, asked, "asked once")
		asked = nil
	}
	_, err = guarded.Resolve(b.ctx, resolution(open), func(context.Context, broker.Item) (broker.Verdict, error) {
		b.Error("the reader must not be called")
		return broker.Verdict{}, nil
	})
	denied("resolve", open.IdempotencyKey, err)
	assert.Equal(b, broker.Unresolved, b.phase(open))
	page, err := guarded.ListUnresolved(b.ctx, broker.Page{Tenant: firmA})
	denied("list_unresolved", uuid.Nil, err)
	assert.Empty(b, page)
	n, err := guarded.Purge(b.ctx, broker.Page{Tenant: firmA})
	denied("purge", uuid.Nil, err)
	assert.Zero(b, n)
	allow = true
	page, err = guarded.ListUnresolved(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(b, err)
	assert.Len(b, page, 1, "there was something to show")
	n, err = guarded.Purge(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(b, err)
	assert.Equal(b, 1, n, "and something to purge")

	down := b.with(broker.Config{ReplayWait: -1, Authorize: func(context.Context, broker.Access) error {
		return contract.ErrUnavailable.With(errors.New("policy server"))
	}})
	_, err = down.confirm(request(free), b.never)
	require.ErrorIs(b, err, contract.ErrUnavailable, "fail closed, but do not call it a denial")
}

// orderOfAnswers makes every pair of reasons true at once and sees the earlier one told.
func orderOfAnswers[TTx any](b *bench[TTx]) {
	denying := b.with(broker.Config{ReplayWait: -1, Authorize: func(context.Context, broker.Access) error {
		return errors.New("no")
	}})
	brief := b.with(broker.Config{ProposalExpiry: expiry})
	expired, done, crashed := brief.propose("a"), brief.propose("a"), brief.propose("a")
	running := brief.propose("a")
	_, err := b.confirm(request(done), apply)
	require.NoError(b, err)
	b.crashed(crashed, short, "")
	b.crashed(running, long, "")
	b.Advance(expiry) // all four proposals have expired
	never := done
	never.IdempotencyKey = uuid.New()
	empty := done
	empty.Items = nil

	for _, c := range []struct {
		name   string
		on     *bench[TTx]
		c      contract.OperationConfirmation
		answer string
	}{
		{"1 shape before conflict", denying, empty, "invalid"},
		{"3 conflict before denied, completed, stale", denying, otherContent(done), "key_reused"},
		{"3 conflict before denied, expired, stale", denying, otherContent(expired), "key_reused"},
		{"3 conflict before in progress", b, otherContent(running), "key_reused"},
		{"3 conflict before ambiguous", b, otherContent(crashed), "key_reused"},
		{"4 denied before completed", denying, done, "denied"},
		{"4 denied before in progress", denying, running, "denied"},
		{"4 denied before ambiguous", denying, crashed, "denied"},
		{"4 denied before not minted", denying, never, "denied"},
		{"4 denied before expired", denying, expired, "denied"},
		{"5 completed before expired and stale", b, done, "replayed"},
		{"6 in progress before expired and stale", b, running, "in_progress"},
		{"7 ambiguous before expired and stale", b, crashed, "ambiguous"},
		{"8 not minted before stale", b, never, "not_minted"},
		{"9 expired before stale", b, expired, "expired"},
	} {
		req := request(c.c)
		req.Current = moved() // stale is true of all of them
		res, err := c.on.confirm(req, b.never)
		assert.Equal(b, c.answer, broker.AnswerOf(res, err), "%s: %v", c.name, err)
	}
}

func concurrentConfirms[TTx any](b *bench[TTx]) {
	waiting := b.with(broker.Config{ReplayWait: 20 * time.Second})
	c := b.propose("a", "b")
	const n = 25
	answers := make([]string, n)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i] = broker.AnswerOf(waiting.confirm(request(c), apply))
		})
	}
	close(start)
	wg.Wait()
	tally := map[string]int{}
	for _, a := range answers {
		tally[a]++
	}
	assert.EqualValues(b, 2, b.calls.Load(), "one executor call per item")
	assert.Equal(b, 1, tally["executed"], "%v", tally)
	assert.Equal(b, n-1, tally["replayed"]+tally["in_progress"], "%v", tally)
	if b.inDatabase() {
		assert.Equal(b, 1, b.effects("a"))
		assert.Equal(b, 1, b.effects("b"))
	}
}

func badRequests[TTx any](b *bench[TTx]) {
	uses := counting(&b.Harness)
	counted := b.with(broker.Config{ReplayWait: -1})
	good := request(b.propose("a"))
	for name, spoil := range map[string]func(*broker.Request){
		"no tenant":       func(r *broker.Request) { r.Tenant = "" },
		"tenant with NUL": func(r *broker.Request) { r.Tenant = "firm\x00" },
		"tenant too long": func(r *broker.Request) { r.Tenant = strings.Repeat("x", 200) },
		"nil key":         func(r *broker.Request) { r.Confirmation.IdempotencyKey = uuid.Nil },
		"no items":        func(r *broker.Request) { r.Confirmation.Items = nil },
		"URL as surface":  func(r *broker.Request) { r.Confirmation.SurfaceKey = "https://example.com" },
		"no version":      func(r *broker.Request) { r.Confirmation.ContractVersion = "" },
		"item twice":      func(r *broker.Request) { r.Confirmation.Items = append(r.Confirmation.Items, r.Confirmation.Items[0]) },
		"number out of range": func(r *broker.Request) {
			r.Confirmation.Items = []contract.Item{{ID: "a", Op: "x", Params: json.RawMessage(`{"n":1e400}`)}}
		},
	} {
		req := good
		spoil(&req)
		_, err := counted.confirm(req, b.never)
		var invalid *contract.InvalidError
		require.ErrorAs(b, err, &invalid, name)
		require.ErrorIs(b, err, contract.ErrInvalid)
		assert.NotEmpty(b, invalid.Path, name)
	}
	_, err := counted.Propose(b.ctx, "", proposal("a"))
	require.ErrorIs(b, err, contract.ErrInvalid)
	_, err = counted.Propose(b.ctx, firmA, proposal())
	require.ErrorIs(b, err, contract.ErrInvalid)
	assert.Zero(b, uses.Load(), "the store is not used")
	assert.Equal(b, broker.Proposed, counted.phase(good.Confirmation))
	assert.EqualValues(b, 1, uses.Load(), "a use is seen")
}

func refusalsAreSafe[TTx any](b *bench[TTx]) {
	const marker = "plantedmarker"
	brief := b.with(broker.Config{ProposalExpiry: short})
	c, err := brief.Propose(b.ctx, marker+"-firm", contract.OperationProposal{SurfaceKey: fresh.SurfaceKey,
		ContractVersion: "v1", Items: []contract.Item{{ID: marker, Op: marker, Params: json.RawMessage(`{"p":"` + marker + `"}`)}}})
	require.NoError(b, err)
	req := broker.Request{Tenant: marker + "-firm", Confirmation: c, Current: moved()}
	stale := req
	other := req
	other.Confirmation = otherContent(c)
	foreign := req
	foreign.Tenant = marker + "-other"
	for _, r := range []broker.Request{stale, other, foreign} {
		_, err := b.confirm(r, b.never)
		require.Error(b, err)
		assert.NotContains(b, err.Error(), marker)
		assert.NotContains(b, err.Error(), c.IdempotencyKey.String())
	}
	b.Advance(2 * short)
	_, err = b.confirm(req, b.never)
	require.ErrorIs(b, err, contract.ErrExpired)
	assert.NotContains(b, err.Error(), marker)
}
