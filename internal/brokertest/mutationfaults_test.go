package brokertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// flakyTx is a flaky store whose transactions are lost too: their beginning, which leaves none, and their commit.
type flakyTx struct{ *flaky }

func (f flakyTx) Begin(ctx context.Context, o store.Opening) (tx *memstore.Tx, s store.Standing, err error) {
	_, err = call(f.flaky, func() (int, error) {
		tx, s, err = f.Store.Begin(ctx, o)
		return 0, err
	})
	if errors.Is(err, errLost) && tx != nil {
		_ = f.Store.Rollback(ctx, tx)
	}
	return tx, s, err
}

func (f flakyTx) Commit(ctx context.Context, tx *memstore.Tx, c store.Closing) error {
	reached := false
	_, err := call(f.flaky, func() (int, error) {
		reached = true
		return 0, f.Store.Commit(ctx, tx, c)
	})
	if !reached { // the server gives up what it does not hear of again
		_ = f.Store.Rollback(ctx, tx)
	}
	return err
}

// R60, R33, R23, R29: whichever of Mutate's own calls is lost, before or after it was made, and however long the store stays
// away: no effect is made twice, no receipt that was told changes but from UNKNOWN, and "nothing was done" is true.
func TestMutationLosesStoreCalls(t *testing.T) {
	fired := map[string]int{}
	for _, shape := range []string{"in", "out"} {
		for _, after := range []bool{false, true} {
			for down := range 4 {
				for n := 1; ; n++ {
					f := &flaky{fail: n, after: after, down: down}
					h := memory()
					f.Store = h.Store
					h.Store = flakyTx{f}
					b := newBench(t, h, "Mutate", &broker.Config{ReplayWait: -1, StoreTimeout: 50 * time.Millisecond})
					m := both(b)[shape]
					first, err := b.Mutate(b.ctx, m)
					if !f.fired {
						require.NoError(t, err)
						break
					}
					fired[shape]++
					f.fail, f.down = f.calls+1000, 0 // the store is back
					checkMutationAfterLoss(b, m, first, err, fmt.Sprintf("%s, call %d, after %t, down %d", shape, n, after, down))
				}
			}
		}
	}
	assert.Equal(t, map[string]int{"in": 2 * 2 * 4, "out": 3 * 2 * 4}, fired)
}

func checkMutationAfterLoss[TTx any](b *bench[TTx], m broker.Mutation[TTx], first contract.Receipt, err error, at string) {
	b.Helper()
	if err != nil {
		f, ok := contract.FailureOf(err)
		require.True(b, ok, at)
		require.Equal(b, contract.Unavailable, f.Code, at)
		if f.KnownNoEffect() {
			require.Zero(b, b.effects("in"), at)
			b.missing(m.Meta.OperationID)
		}
	}
	second, err := b.Mutate(b.ctx, m)
	require.NoError(b, err, at)
	third, err := b.Mutate(b.ctx, m)
	require.NoError(b, err, at)
	if first.Result.Terminal() {
		require.Equal(b, first.Result, second.Result, at)
		require.True(b, second.Replayed, at)
	}
	require.Equal(b, second.Result, third.Result, at)
	require.LessOrEqual(b, b.effects("in"), 1, at)
	if m.Invoke != nil {
		require.LessOrEqual(b, b.calls.Load(), int32(1), at)
	}
	if second.Applied() && m.Apply != nil {
		require.Equal(b, 1, b.effects("in"), at)
	}
}

// R69, R23: an Invoke that comes back after its lease changes no receipt, and what it says against the verdict is kept.
func TestLateInvocationIsKept(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		kept := make(chan struct{})
		h.Store = &keeps{h.Store, kept}
		b := newBench(t, h, "Mutate", &broker.Config{ReplayWait: -1, Lease: short})
		release := make(chan struct{})
		m := mutation[*memstore.Tx]("op")
		m.Invoke = func(context.Context, broker.Call) (contract.Receipt, error) {
			<-release
			return applied, nil
		}
		b.mutate(m, contract.ResultUnknown)
		_, err := b.ResolveMutation(b.ctx, ref("op"), "on-call", func(context.Context, broker.Call) (contract.Receipt, error) {
			return contract.Receipt{Result: contract.ResultNotApplied, Detail: "not in the ledger"}, nil
		})
		require.NoError(t, err)
		close(release)
		<-kept
		b.mutate(m, contract.ResultNotApplied)
		st, err := b.QueryMutation(b.ctx, ref("op"))
		require.NoError(t, err)
		require.Len(t, st.Contradictions, 1)
		assert.Equal(t, "call/1", st.Contradictions[0].Ref)
		open, err := b.ListUnresolvedMutations(b.ctx, broker.Page{Tenant: firmA})
		require.NoError(t, err)
		require.Len(t, open, 1)
		assert.True(t, open[0].Contested)
	})
}

// keeps is a store that tells when an observation was kept.
type keeps struct {
	store.Store[*memstore.Tx]
	kept chan struct{}
}

func (k *keeps) Keep() store.Keeper { return tellingKeeper{k.Store.Keep(), k.kept} }

type tellingKeeper struct {
	store.Keeper
	kept chan struct{}
}

func (k tellingKeeper) Observe(ctx context.Context, p store.ObserveParams) error {
	defer close(k.kept)
	return k.Keeper.Observe(ctx, p)
}

// R120, R52, R14: what became of a lost reply is found by asking the original, then by sealing it, and by nothing else.
func TestReconcile(t *testing.T) {
	missing, down := error(broker.ErrNoMutation), errors.New("the other side is down")
	for name, c := range map[string]struct {
		queries []error // what each query says; nil: applied
		seal    error
		noSeal  bool
		want    contract.ResultCode
		err     error
		asked   string
	}{
		"found":                          {[]error{nil}, nil, false, contract.ResultApplied, nil, "q"},
		"missing, no seal":               {[]error{missing}, nil, true, contract.ResultUnknown, nil, "q"},
		"missing, sealed":                {[]error{missing, contract.ErrSealed}, nil, false, contract.ResultNotApplied, nil, "qsq"},
		"missing, sealed before":         {[]error{missing, contract.ErrSealed}, contract.ErrSealed, false, contract.ResultNotApplied, nil, "qsq"},
		"sealed":                         {[]error{contract.ErrSealed}, nil, false, contract.ResultNotApplied, nil, "q"},
		"it arrived before the seal":     {[]error{missing, nil}, nil, false, contract.ResultApplied, nil, "qsq"},
		"a seal that does not show":      {[]error{missing, missing}, nil, false, contract.ResultUnknown, nil, "qsq"},
		"the query fails":                {[]error{down}, nil, false, contract.ResultUnknown, down, "q"},
		"the seal fails":                 {[]error{missing}, down, false, contract.ResultUnknown, down, "qs"},
		"the second query fails":         {[]error{missing, down}, nil, false, contract.ResultUnknown, down, "qsq"},
		"refused: nothing is known":      {[]error{contract.ErrDenied}, nil, false, contract.ResultUnknown, contract.ErrDenied, "q"},
		"unavailable: nothing is sealed": {[]error{contract.ErrUnavailable}, nil, false, contract.ResultUnknown, contract.ErrUnavailable, "q"},
	} {
		asked := ""
		o := broker.Original{
			Query: func(context.Context) (contract.Receipt, error) {
				asked += "q"
				err := c.queries[0]
				c.queries = c.queries[1:]
				if err != nil {
					return contract.Receipt{}, err
				}
				return applied, nil
			},
			Seal: func(context.Context) error { asked += "s"; return c.seal },
		}
		if c.noSeal {
			o.Seal = nil
		}
		r, err := broker.Reconcile(t.Context(), o)
		assert.Equal(t, c.want, r.Result, name)
		assert.ErrorIs(t, err, c.err, name)
		assert.Equal(t, c.asked, asked, name)
	}
	r, err := broker.Reconcile(t.Context(), broker.Original{Query: func(context.Context) (contract.Receipt, error) {
		return contract.Receipt{}, nil
	}})
	require.NoError(t, err)
	assert.Equal(t, contract.ResultUnknown, r.Result, "a reply without a receipt")
}

// R109: a query changes no row.
func TestQueriesChangeNoRow(t *testing.T) {
	pool := pgtest.New(t).Pool(t)
	b := newBench(t, postgres(t, pool), "Mutate", nil)
	m := mutation[pgx.Tx]("op")
	m.Invoke, m.Identities = invokes(b, contract.Receipt{}, errors.New("lost")), []broker.Identity{{Kind: "execution", Value: "e-1"}}
	b.mutate(m, contract.ResultUnknown)
	versions := func() (all []string) {
		tx, err := pool.Begin(b.ctx)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(b.ctx) }()
		_, err = tx.Exec(b.ctx, `SELECT set_config('app.firm_id', $1, true)`, firmA)
		require.NoError(t, err)
		rows, err := tx.Query(b.ctx, `SELECT t.ctid::text || t.xmin::text || t.xmax::text || t::text FROM agents.agent_idempotency_key t ORDER BY 1`)
		require.NoError(t, err)
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return all
	}
	before := versions()
	require.Len(t, before, 2)
	for _, r := range []broker.MutationRef{ref("op"), {Tenant: firmA, Identity: m.Identities[0]}} {
		_, err := b.QueryMutation(b.ctx, r)
		require.NoError(t, err)
	}
	b.missing("other")
	_, err := b.ListUnresolvedMutations(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(t, err)
	assert.Equal(t, before, versions())
}

// R26, R60: what a mutation costs in network round trips.
func TestMutationRoundTrips(t *testing.T) {
	b, counter := counted(t, broker.Config{ReplayWait: -1})
	for warm := range 2 {
		run := func(name string, want int, m broker.Mutation[pgx.Tx]) {
			got := counter.During(func() { b.mutate(m, contract.ResultApplied) })
			if warm == 1 {
				assert.Equal(t, want, got, name)
			}
		}
		m := mutation[pgx.Tx](fmt.Sprint("out-", warm))
		m.Invoke = invokes(b, applied, nil)
		run("invoke", 3, m)
		run("replay", 2, m)
		m = mutation[pgx.Tx](fmt.Sprint("in-", warm))
		m.Apply = writes(b, "trips")
		run("apply, with its own statement", 5, m)
		m = mutation[pgx.Tx](fmt.Sprint("identity-", warm))
		m.Invoke, m.Identities = invokes(b, applied, nil), []broker.Identity{{Kind: "execution", Value: fmt.Sprint(warm)}}
		run("invoke with an identity", 4, m)
		got := counter.During(func() { _, _ = b.QueryMutation(b.ctx, ref(m.Meta.OperationID)) })
		if warm == 1 {
			assert.Equal(t, 1, got, "query")
		}
	}
}

// S22: no answer, event, log line or error of a mutation holds what it is about.
func TestMutationCanary(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		var said told
		b := newBench(t, h, "Mutate", &broker.Config{
			ReplayWait: -1, Observer: &said,
			Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		m := mutation[*memstore.Tx](marker)
		m.Tenant, m.AgentID, m.Meta.IdempotencyKey = marker, marker, marker
		m.Identities = []broker.Identity{{Kind: marker, Value: marker}}
		r := broker.MutationRef{Tenant: marker, AgentID: marker, OperationID: marker}
		try := func(m broker.Mutation[*memstore.Tx]) {
			_, err := b.Mutate(b.ctx, m)
			said.err(err)
		}
		m.Apply = func(context.Context, *memstore.Tx) (contract.Receipt, error) { return applied, errors.New(marker) }
		try(m)
		m.Apply = func(context.Context, *memstore.Tx) (contract.Receipt, error) { panic(marker) }
		try(m)
		_, err := b.QueryMutation(b.ctx, r)
		said.err(err)
		m.Apply, m.Invoke = nil, invokes(b, applied, errors.New(marker))
		try(m)
		try(m)
		other := m
		other.Digest[0]++
		try(other)
		other = m
		other.Meta.OperationID += "2"
		try(other)
		_, err = b.ResolveMutation(b.ctx, r, marker, func(context.Context, broker.Call) (contract.Receipt, error) { panic(marker) })
		said.err(err)
		_, err = b.SealMutation(b.ctx, r, marker)
		said.err(err)
		assert.NotContains(t, said.text.String(), marker)
		assert.Greater(t, said.n, 15)
	})
}

// R54, R62: a mutation that is shared by many callers is read and not changed: each of its identities is claimed.
func TestIdentitiesOfASharedMutation(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		b := newBench(t, h, "Mutate", nil)
		m := mutation[*memstore.Tx]("op")
		m.Invoke = invokes(b, applied, nil)
		m.Identities = []broker.Identity{{Kind: "permit", Value: "p"}, {Kind: "execution", Value: "e"}}
		given := slices.Clone(m.Identities)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { _, _ = b.Mutate(b.ctx, m) })
		}
		wg.Wait()
		assert.Equal(t, given, m.Identities)
		for _, i := range m.Identities {
			_, err := b.QueryMutation(b.ctx, broker.MutationRef{Tenant: firmA, Identity: i})
			assert.NoError(t, err, i.Kind)
		}
	})
}

// R26, R29: a try that held the operation and was rolled back says nothing of what another request has made of it since.
func TestRolledBackTryKnowsNothingOfLater(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		s := spy(&h)
		b := newBench(t, h, "Mutate", nil)
		m := mutation[*memstore.Tx]("op")
		other := m
		other.Apply = writes(b, "other")
		ctx, leave := context.WithCancel(b.ctx)
		m.Apply = func(context.Context, *memstore.Tx) (contract.Receipt, error) {
			return contract.Receipt{}, store.ErrRetryTx
		}
		begun := 0
		s.begin = func() {
			if begun++; begun == 2 { // between the first request's tries
				b.mutate(other, contract.ResultApplied)
				leave()
				m.Apply = other.Apply
			}
		}
		first := m
		first.Apply = func(c context.Context, tx *memstore.Tx) (contract.Receipt, error) { return m.Apply(c, tx) }
		first.Guard = func(context.Context, *memstore.Tx) error {
			if begun > 1 {
				return errors.New("the connection is gone")
			}
			return nil
		}
		_, err := b.Mutate(ctx, first)
		f, ok := contract.FailureOf(err)
		require.True(t, ok, "%v", err)
		assert.False(t, f.KnownNoEffect(), "%v", err)
		assert.Equal(t, 1, b.effects("other"))
	})
}

// R65, R60: an effect whose lease was over before it could be invoked is not invoked: somebody may have read that it is not there.
func TestLeaseIsOverBeforeTheInvocation(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		s := spy(&h)
		b := newBench(t, h, "Mutate", &broker.Config{ReplayWait: -1, Lease: short})
		s.commit = func(_ *memstore.Tx, _ store.Closing, pass func() error) error {
			err := pass()
			time.Sleep(2 * short)
			return err
		}
		m := mutation[*memstore.Tx]("op")
		m.Invoke = invokes(b, applied, nil)
		r := b.mutate(m, contract.ResultNotApplied)
		assert.Contains(t, r.Detail, "not invoked")
		b.mutate(m, contract.ResultNotApplied)
		assert.Zero(t, b.calls.Load())
	})
}

// R34: a purge does not lose the way from an execution to its operation, which may be open still, and one observation more does not
// stop the listing.
func TestPurgeKeepsIdentities(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		b := newBench(t, h, "Mutate", &broker.Config{ReplayWait: -1, PayloadRetention: time.Microsecond})
		m := mutation[*memstore.Tx]("op")
		m.Invoke, m.Identities = invokes(b, applied, errors.New("lost")), []broker.Identity{{Kind: "execution", Value: "e"}}
		b.mutate(m, contract.ResultUnknown)
		b.Advance(time.Hour)
		_, err := b.Purge(b.ctx, broker.Page{Tenant: firmA})
		require.NoError(t, err)
		by := broker.MutationRef{Tenant: firmA, Identity: m.Identities[0]}
		r, err := b.ResolveMutation(b.ctx, by, "on-call", func(context.Context, broker.Call) (contract.Receipt, error) { return applied, nil })
		require.NoError(t, err)
		assert.True(t, r.Applied())
		b.Advance(time.Hour)
		n, err := b.Purge(b.ctx, broker.Page{Tenant: firmA})
		require.NoError(t, err)
		assert.Equal(t, 1, n, "the operation, and not its identity")
		_, err = b.QueryMutation(b.ctx, by)
		require.ErrorIs(t, err, contract.ErrPruned)
	})
}

// R120, R25: what is missing is said, and nothing runs.
func TestZeroValuesOfMutations(t *testing.T) {
	r, err := broker.Reconcile(t.Context(), broker.Original{})
	require.ErrorIs(t, err, contract.ErrInvalid)
	assert.Equal(t, contract.ResultUnknown, r.Result)
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		b := newBench(t, h, "Mutate", nil)
		m := mutation[*memstore.Tx]("op")
		m.Invoke, m.Digest = invokes(b, applied, nil), contract.Digest{}
		_, err := b.Mutate(b.ctx, m)
		require.ErrorIs(t, err, contract.ErrInvalid)
	})
}

// R100: a publisher whose error looks like one of ours is tried again, and half a fact is never left in a transaction.
func TestFactsAndOddErrors(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		b := newBench(t, h, "facts", nil)
		_, err := b.queue(fact("f"), true)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(b.ctx)
		tries := 0
		err = b.KeepPublishing(ctx, broker.Publishing{Tenant: firmA, Source: source, BackOff: time.Millisecond,
			Publish: func(context.Context, broker.QueuedFact) error {
				if tries++; tries < 3 {
					return contract.ErrInvalid
				}
				stop()
				return nil
			}})
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 3, tries)
		require.ErrorIs(t, b.KeepPublishing(b.ctx, broker.Publishing{Tenant: firmA}), contract.ErrInvalid)

		gone, leave := context.WithCancel(b.ctx)
		tx, err := h.Begin(b.ctx)
		require.NoError(t, err)
		leave()
		q, err := b.QueueFact(gone, tx, fact("g"))
		require.NoError(t, h.Commit(b.ctx, tx))
		again, lookup := b.LookupFact(b.ctx, firmA, source, "g")
		if err != nil {
			require.ErrorIs(t, lookup, broker.ErrNoFact, "nothing of it was left")
			return
		}
		require.NoError(t, lookup)
		assert.Equal(t, q.Ordinal, again.Ordinal)
	})
}
