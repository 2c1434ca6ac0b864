package brokertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

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

// marker is planted in everything that must not be told: tenants, item ids, operations, params, outcomes, panics, causes.
const marker = "plantedmarker"

// ledger of everything that the library said.
type told struct {
	mu   sync.Mutex
	text bytes.Buffer
	n    int
}

func (l *told) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return l.text.Write(p)
}

func (l *told) Observe(_ context.Context, e broker.Event) { fmt.Fprintf(l, "event %+v\n", e) }

// err writes an error's text as a service would log it, and each error of its chain that is the library's own.
func (l *told) err(err error) {
	for ; err != nil; err = errors.Unwrap(err) {
		fmt.Fprintf(l, "error %v | %+v | %s\n", err, err, err)
		switch err.(type) {
		case *contract.ConflictError, *contract.InvalidError, *contract.UnsettledError:
		default: // below a Failure or a store's error are the caller's and the driver's own
			return
		}
	}
}

func canaryProposal() contract.OperationProposal {
	p := contract.OperationProposal{SurfaceKey: fresh.SurfaceKey, ContractVersion: fresh.ContractVersion}
	for _, id := range []string{"good", "panics", "fails", "silent"} {
		p.Items = append(p.Items, contract.Item{ID: marker + id, Op: marker, Params: json.RawMessage(`{"` + marker + `":"` + marker + `"}`)})
	}
	return p
}

func canaryExecutor(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
	switch strings.TrimPrefix(it.ID, marker) {
	case "panics":
		panic(marker)
	case "fails":
		return broker.Outcome{}, errors.New(marker)
	case "silent":
		return broker.Outcome{}, nil
	}
	return broker.Applied(marker).WithDetail(marker), write(marker)
}

// canary makes every kind of answer with marked input, and finds the mark in nothing that the library logs, tells an observer
// or says in an error.
func canary[TTx any](b *bench[TTx]) {
	l := &told{}
	cfg := broker.Config{ReplayWait: -1, Observer: l, Logger: slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	marked := b.with(cfg)
	firm := marker + "-firm"
	confirm := func(on *bench[TTx], c contract.OperationConfirmation, current contract.CurrentSurfaceState) {
		res, err := on.confirm(broker.Request{Tenant: firm, Confirmation: c, Current: current}, canaryExecutor)
		l.err(err)
		if res != nil {
			l.err(res.Err())
		}
	}
	propose := func(on *bench[TTx]) contract.OperationConfirmation {
		c, err := on.Propose(b.ctx, firm, canaryProposal())
		require.NoError(b, err)
		return c
	}

	c := propose(marked)
	confirm(marked, c, moved())
	confirm(marked, c, fresh)
	confirm(marked, c, fresh)
	confirm(marked, otherContent(c), fresh)
	never := c
	never.IdempotencyKey = uuid.New()
	confirm(marked, never, fresh)
	brief := cfg
	brief.ProposalExpiry = 1
	confirm(marked, propose(b.with(brief)), fresh)
	denied := cfg
	denied.Authorize = func(context.Context, broker.Access) error { return errors.New(marker) }
	confirm(b.with(denied), c, fresh)
	running := propose(marked)
	digest, err := contract.DigestOf(running.Proposal())
	require.NoError(b, err)
	_, err = b.Store.Own().Claim(b.ctx, store.ClaimParams{ID: store.ID{Tenant: firm, Key: running.IdempotencyKey}, Digest: digest,
		Attempt: uuid.New(), Mode: store.ModeExternal, Lease: long})
	require.NoError(b, err)
	confirm(marked, running, fresh)
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
		confirm(marked, bad, fresh)
	}
	_, err = marked.Lookup(b.ctx, firm+"\x00", c.IdempotencyKey)
	l.err(err)
	_, err = marked.Cancel(b.ctx, firm, c.IdempotencyKey)
	l.err(err)
	_, err = contract.DecodeConfirmation([]byte(`{"`+marker+`":"`+marker+`"}`), contract.Limits{})
	l.err(err)

	assert.Greater(b, l.n, 30, "the canary heard something")
	assert.NotContains(b, l.text.String(), marker)
	for _, key := range []uuid.UUID{c.IdempotencyKey, never.IdempotencyKey, running.IdempotencyKey} {
		assert.NotContains(b, l.text.String(), key.String())
	}
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

// S23: every statement runs under the caller's span, also those that outlive the caller.
func TestStatementsRunUnderTheCallersSpan(t *testing.T) {
	t.Parallel()
	seen := &spans{}
	pool := pgtest.New(t).Pool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = seen })
	b := newBench(t, postgres(t, pool), execute, nil)
	ctx, leave := context.WithCancel(context.WithValue(t.Context(), spanKey{}, "span"))
	b.ctx = ctx
	c := b.propose("a", "b")
	_, err := b.Execute(ctx, request(c), func(ctx context.Context, _ broker.Item) (broker.Outcome, error) {
		leave()
		assert.Equal(t, "span", ctx.Value(spanKey{}))
		return broker.Applied(""), nil
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(seen.seen), 4, "propose, claim, progress, complete")
	for _, span := range seen.seen {
		assert.Equal(t, "span", span)
	}
}
