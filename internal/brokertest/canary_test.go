package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
)

// The surface of the canary's proposal, and where it has moved to.
var (
	canarySurface = contract.CurrentSurfaceState{SurfaceKey: marker, ContractVersion: marker}
	canaryMoved   = contract.CurrentSurfaceState{SurfaceKey: marker + "2", ContractVersion: marker + "2"}
)

func canaryProposal() contract.OperationProposal {
	p := contract.OperationProposal{SurfaceKey: canarySurface.SurfaceKey, ContractVersion: canarySurface.ContractVersion}
	for _, id := range []string{"good", "panics", "fails", "silent"} {
		p.Items = append(p.Items, contract.Item{ID: marked(id), Op: marker, Params: json.RawMessage(`{"` + marker + `":"` + marker + `"}`)})
	}
	return p
}

func canaryExecutor(_ context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
	switch it.ID {
	case "panics":
		panic(marker)
	case "fails":
		return broker.Outcome{}, errors.New(marker)
	case "silent":
		return broker.Outcome{}, nil
	}
	return broker.Applied(marker).WithDetail(marker), write(marker)
}

// canaryReader reads what became of an item as canaryExecutor carries it out.
func canaryReader(_ context.Context, it broker.Item) (broker.Verdict, error) {
	switch it.ID {
	case "panics":
		panic(marker)
	case "fails":
		return broker.FoundApplied(marker, marker), errors.New(marker)
	case "silent":
		return broker.StillUnknown(marker), nil
	}
	return broker.FoundApplied(marker, marker), nil
}

// canary makes every kind of answer with marked input, and finds the mark in nothing that the library logs, tells an observer
// or says in an error.
func canary[TTx any](b *bench[TTx]) {
	l := &told{}
	cfg := broker.Config{ReplayWait: -1, Observer: l, Logger: l.logger()}
	on := b.with(cfg)
	firm := marked("firm")
	confirm := func(on *bench[TTx], c contract.OperationConfirmation, current contract.CurrentSurfaceState) {
		l.answer(on.confirm(broker.Request{Tenant: firm, Confirmation: c, Current: current}, canaryExecutor))
	}
	propose := func(on *bench[TTx]) contract.OperationConfirmation {
		c, err := on.Propose(b.ctx, firm, canaryProposal())
		require.NoError(b, err)
		return c
	}
	claimed := func(lease time.Duration) contract.OperationConfirmation {
		c := propose(on)
		digest, err := contract.DigestOf(c.Proposal())
		require.NoError(b, err)
		_, err = b.Store.Own().Claim(b.ctx, store.ClaimParams{ID: store.ID{Tenant: firm, Key: c.IdempotencyKey}, Digest: digest,
			Attempt: uuid.New(), Mode: store.ModeExternal, Lease: lease})
		require.NoError(b, err)
		return c
	}

	c := propose(on)
	confirm(on, c, canaryMoved)
	confirm(on, c, canarySurface)
	confirm(on, c, canarySurface)
	confirm(on, otherContent(c), canarySurface)
	never := c
	never.IdempotencyKey = uuid.New()
	confirm(on, never, canarySurface)
	brief := cfg
	brief.ProposalExpiry = 1
	confirm(on, propose(b.with(brief)), canarySurface)
	denied := cfg
	denied.Authorize = func(context.Context, broker.Access) error { return errors.New(marker) }
	confirm(b.with(denied), c, canarySurface)
	running, crashed := claimed(long), claimed(short)
	confirm(on, running, canarySurface)
	for _, spoil := range []func(*contract.OperationConfirmation){
		func(c *contract.OperationConfirmation) { c.Items = append(c.Items, c.Items[0]) },
		func(c *contract.OperationConfirmation) {
			c.Items[0].Params = json.RawMessage(`{"` + marker + `":1e999}`)
		},
		func(c *contract.OperationConfirmation) {
			c.Items[0].Params = json.RawMessage(`{"` + marker + `":` + marker)
		},
		func(c *contract.OperationConfirmation) { c.Items[0].Op = marker + "\x00" },
		func(c *contract.OperationConfirmation) { c.SurfaceKey = "https://" + marker },
	} {
		bad := canaryProposal().Confirmation(c.IdempotencyKey)
		spoil(&bad)
		confirm(on, bad, canarySurface)
	}
	_, err := contract.DecodeConfirmation([]byte(`{"`+marker+`":"`+marker+`"}`), contract.Limits{})
	l.err(err)
	_, err = on.Lookup(b.ctx, firm+"\x00", c.IdempotencyKey)
	l.err(err)
	b.Advance(2 * short)
	confirm(on, crashed, canarySurface)
	canaryReads(b.with(denied), l, firm, crashed.IdempotencyKey)
	canaryReads(on, l, firm, running.IdempotencyKey)
	canaryReads(on, l, firm, crashed.IdempotencyKey)
	confirm(on, crashed, canarySurface)
	canaryMutation(on, l, firm)
	away := b.unreachable(cfg)
	confirm(away, propose(on), canarySurface)
	canaryReads(away, l, firm, c.IdempotencyKey)

	assert.Greater(b, l.n, 100, "the canary heard something")
	for _, method := range []string{"propose", "resolve", "list_unresolved", "purge", "cancel", "mutate"} {
		assert.Contains(b, l.text.String(), "Method:"+method+" ")
	}
	assert.Contains(b, l.text.String(), "Answer:unavailable ")
	assert.NotContains(b, l.text.String(), marker)
	for _, key := range []uuid.UUID{c.IdempotencyKey, never.IdempotencyKey, running.IdempotencyKey, crashed.IdempotencyKey} {
		assert.NotContains(b, l.text.String(), key.String())
	}
}

// canaryReads makes the calls that are about a key, or about all keys of a tenant, and do not confirm.
func canaryReads[TTx any](on *bench[TTx], l *told, firm string, key uuid.UUID) {
	for _, call := range []func() error{
		func() error {
			_, err := on.Resolve(on.ctx, broker.Resolution{Tenant: firm, Key: key, By: marker}, canaryReader)
			return err
		},
		func() error {
			_, err := on.Resolve(on.ctx, broker.Resolution{Tenant: firm, Key: key, By: marker + "\n"}, nil)
			return err
		},
		func() error { _, err := on.ListUnresolved(on.ctx, broker.Page{Tenant: firm}); return err },
		func() error { _, err := on.ListUnresolved(on.ctx, broker.Page{Tenant: firm, Limit: -1}); return err },
		func() error { _, err := on.Purge(on.ctx, broker.Page{Tenant: firm}); return err },
		func() error { _, err := on.Lookup(on.ctx, firm, key); return err },
		func() error { _, err := on.Cancel(on.ctx, firm, key); return err },
	} {
		l.err(call())
	}
}

// canaryMutation has a mutation's outcome stay unknown, and be refused and asked about.
func canaryMutation[TTx any](on *bench[TTx], l *told, firm string) {
	m := mutation[TTx](marker)
	m.Tenant, m.Identities, m.Invoke = firm, []broker.Identity{{Kind: marker, Value: marker}}, invokes(on, applied, errors.New(marker))
	other := m
	other.Digest[0]++
	for _, m := range []broker.Mutation[TTx]{m, m, other} {
		_, err := on.Mutate(on.ctx, m)
		l.err(err)
	}
	_, err := on.ListUnresolvedMutations(on.ctx, broker.Page{Tenant: firm})
	l.err(err)
	_, err = on.ResolveMutation(on.ctx, broker.MutationRef{Tenant: firm, AgentID: agent, OperationID: marker}, marker,
		func(context.Context, broker.Call) (contract.Receipt, error) { panic(marker) })
	l.err(err)
}

// unreachable is the bench on a store that no call of the broker's reaches any more, for a reason that must not be told.
func (b *bench[TTx]) unreachable(cfg broker.Config) *bench[TTx] {
	cfg.StoreTimeout = briefly
	h := b.Harness
	h.Store = unreachable[TTx]{h.Store}
	return newBench(b.T, h, b.mode, &cfg)
}

type unreachable[TTx any] struct{ store.Store[TTx] }

var errUnreachable = &store.Error{Op: "canary", Cause: errors.New(marker)}

func (u unreachable[TTx]) Own() store.Claims   { return unreachableClaims{} }
func (u unreachable[TTx]) In(TTx) store.Claims { return unreachableClaims{} }
func (u unreachable[TTx]) Keep() store.Keeper  { return unreachableKeeper{} }
func (u unreachable[TTx]) Begin(context.Context, store.Opening) (tx TTx, s store.Standing, err error) {
	return tx, s, errUnreachable
}

type unreachableClaims struct{ store.Claims }

func (unreachableClaims) Claim(context.Context, store.ClaimParams) (s store.Standing, err error) {
	return s, errUnreachable
}

func (unreachableClaims) Lookup(context.Context, store.LookupParams) (s store.Standing, err error) {
	return s, errUnreachable
}

type unreachableKeeper struct{ store.Keeper }

func (unreachableKeeper) List(context.Context, store.ListParams) ([]store.Open, error) {
	return nil, errUnreachable
}

func (unreachableKeeper) Purge(context.Context, store.PurgeParams) (int, error) {
	return 0, errUnreachable
}

// S22: what the server and the driver have to say holds a mark, too.
func TestCanaryOnPostgres(t *testing.T) {
	t.Parallel()
	l := &told{}
	cfg := &broker.Config{ReplayWait: -1, Observer: l, Logger: l.logger()}
	pool := pgtest.New(t).Pool(t)
	b := newBench(t, postgres(t, pool), inTx, cfg)
	c := b.propose("a")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT set_config('app.firm_id', $1, true)`, firmB)
	require.NoError(t, err)
	_, err = b.ExecuteTx(t.Context(), tx, broker.TxRequest[pgx.Tx]{Request: request(c)}, b.txExecutor(b.never))
	require.ErrorIs(t, err, contract.ErrTenantMismatch)
	l.err(err)
	require.NoError(t, tx.Rollback(t.Context()))

	nobody, err := pgxpool.New(t.Context(), "postgres://"+marker+":"+marker+"@127.0.0.1:1/"+marker)
	require.NoError(t, err)
	defer nobody.Close()
	for _, mode := range []string{execute, perItem, atomically} {
		away := newBench(t, postgres(t, nobody), mode, cfg)
		_, err = away.confirm(request(c), away.never)
		require.ErrorIs(t, err, contract.ErrUnavailable)
		l.err(err)
		canaryReads(away, l, firmA, c.IdempotencyKey)
	}
	assert.Greater(t, l.n, 30)
	assert.NotContains(t, l.text.String(), marker)
	assert.NotContains(t, l.text.String(), c.IdempotencyKey.String())
}

type spanKey struct{}

// spans records the value of spanKey in the context of every batch and query.
type spans struct {
	mu   sync.Mutex
	seen []any
}

func (s *spans) note(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, ctx.Value(spanKey{}))
}

func (s *spans) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.note(ctx)
	return ctx
}
func (s *spans) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (s *spans) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	s.note(ctx)
	return ctx
}
func (s *spans) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (s *spans) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// S23: every statement of every mode, and of what settles and keeps keys, runs under the caller's span, also those that outlive the
// caller.
func TestStatementsRunUnderTheCallersSpan(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, mode := range everyMode {
		t.Run(mode, func(t *testing.T) {
			b, under := spanned(t, db, mode)
			ctx, leave := context.WithCancel(b.ctx)
			c := b.propose("a", "b")
			if mode == execute {
				b.ctx = ctx
			}
			_, err := b.confirm(request(c), func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
				leave()
				assert.Equal(t, "span", ctx.Value(spanKey{}))
				return apply(ctx, it, write)
			})
			require.NoError(t, err)
			under(4) // at least: propose, claim, progress or effect, complete
		})
	}
	t.Run("what settles and keeps keys", func(t *testing.T) {
		b, under := spanned(t, db, execute)
		for name, call := range map[string]func(c contract.OperationConfirmation) error{
			"Resolve": func(c contract.OperationConfirmation) error {
				b.crashed(c, short, "a")
				b.Advance(2 * short)
				ctx, leave := context.WithCancel(b.ctx)
				_, err := b.Resolve(ctx, resolution(c), func(ctx context.Context, _ broker.Item) (broker.Verdict, error) {
					leave()
					assert.Equal(t, "span", ctx.Value(spanKey{}))
					return broker.FoundApplied("", ""), nil
				})
				return err
			},
			"Cancel": func(c contract.OperationConfirmation) error {
				_, err := b.Cancel(b.ctx, firmA, c.IdempotencyKey)
				return err
			},
			"ListUnresolved": func(contract.OperationConfirmation) error {
				_, err := b.ListUnresolved(b.ctx, broker.Page{Tenant: firmA})
				return err
			},
			"Purge": func(contract.OperationConfirmation) error {
				_, err := b.Purge(b.ctx, broker.Page{Tenant: firmA})
				return err
			},
		} {
			require.NoError(t, call(b.propose("a")), name)
			under(2) // at least: propose and the call's own
		}
	})
}

// spanned is a bench in a caller's span, and a function that requires that at least n statements since it was last called were under it.
func spanned(t *testing.T, db *pgtest.DB, mode string) (b *bench[pgx.Tx], under func(n int)) {
	t.Helper()
	seen := &spans{}
	b = newBench(t, postgres(t, db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = seen })), mode, nil)
	b.ctx = context.WithValue(t.Context(), spanKey{}, "span")
	return b, func(n int) {
		t.Helper()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		assert.GreaterOrEqual(t, len(seen.seen), n)
		for _, span := range seen.seen {
			assert.Equal(t, "span", span)
		}
		seen.seen = nil
	}
}
