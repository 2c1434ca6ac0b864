package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/faultnet"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// The modes are the broker's methods.
const (
	execute    = "Execute"
	perItem    = "ExecutePerItem"
	inTx       = "ExecuteTx"
	atomically = "ExecuteAtomic"
)

var modes = []string{execute, perItem, inTx, atomically}

var fresh = contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}

// items are confirmed in every scenario. The executor fails item b, and says so.
var items = []string{"a", "b", "c"}

// trial is one case: one key, one fault, and everything that was seen of it. It is the testing.TB of what it starts, so that all
// of that ends with the trial.
type trial struct {
	testing.TB
	*world
	name     string
	tenant   string
	mode     string
	c        contract.OperationConfirmation
	in       *faultnet.Injector
	shaky    *pgxpool.Pool          // through the injector
	br       *broker.Broker[pgx.Tx] // over it
	forgets  *broker.Broker[pgx.Tx] // over it, with a short retention
	cleanups []func()
	failed   bool

	mu            sync.Mutex
	ledger        []effect
	paper         string // the file of another process's effects; empty: there is none
	calls         []invocation
	told          []answer
	taps          int             // confirms so far
	fence         int64           // the highest that was seen
	contradicted  map[string]bool // items whose provisional verdict a late effect contradicts, as is recorded
	beforeReading func()          // is called by the reader of Resolve; nil: nothing
	beforeItem    func()          // is called when an executor is; nil: nothing
	surface       *surface        // is read inside the transaction; nil: it is not, and the caller has read it
	moved         bool            // the caller has read that the surface has moved
}

// invocation is one call on an executor.
type invocation struct {
	confirm int // of which confirm, by number
	item    string
	attempt uuid.UUID
	xid     string // of the transaction in which its effect was written; empty: not known, or none
}

// answer is what a call told its caller.
type answer struct {
	what    string
	confirm int // its number; 0: it was no confirm
	res     *contract.OperationResult
	err     error
	asked   int // how many answers there were when it was asked for
}

func (a answer) String() string {
	if a.err != nil {
		return fmt.Sprintf("%s: %v", a.what, a.err)
	}
	var states []string
	for _, o := range a.res.Outcomes {
		states = append(states, o.ItemID+"="+string(o.State)+"/"+string(o.Reason))
	}
	return fmt.Sprintf("%s: %v replayed=%t", a.what, states, a.res.Replayed)
}

// Errorf reports with the trial's name.
func (c *trial) Errorf(format string, args ...any) {
	c.mu.Lock()
	c.failed = true
	c.mu.Unlock()
	c.TB.Errorf("%s: %s", c.name, fmt.Sprintf(format, args...))
}

// Fatalf is Errorf, and the trial's end.
func (c *trial) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

// FailNow ends the trial, which runs in a goroutine of its own.
func (c *trial) FailNow() {
	c.Fail()
	runtime.Goexit()
}

// Cleanup is for the trial's end.
func (c *trial) Cleanup(f func()) { c.cleanups = append(c.cleanups, f) }

func (c *trial) end() {
	for _, f := range slices.Backward(c.cleanups) {
		f()
	}
	c.cleanups = nil
	if c.failed || *tell {
		for i, a := range c.told {
			c.Logf("%s: %d. %v", c.name, i+1, a)
		}
		c.Logf("%s: invocations %v", c.name, c.calls)
	}
}

// Deadline of the trial's test, for what is started.
func (c *trial) bounded(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// newTrial proposes a key on the calm way, and lays the shaky one.
func newTrial(t testing.TB, w *world, name, mode string) *trial {
	id := uuid.NewString()
	c := &trial{TB: t, world: w, name: name, mode: mode, tenant: "firm-" + id}
	c.in = faultnet.Fault(c, w.db.AppDSN)
	dsn, err := pgtest.WithDSN(c.in.DSN(), "application_name", id)
	require.NoError(c, err)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(c, err)
	config.MaxConns = 4
	c.shaky, err = pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(c, err)
	c.Cleanup(c.shaky.Close)
	st, err := pgstore.NewWithConfig(c.shaky, pgstore.Config{LockTimeout: lockTimeout})
	require.NoError(c, err)
	cfg := broker.Config{Lease: lease, StoreTimeout: storeTimeout, ReplayWait: -1}
	c.br = newBroker(c, st, cfg)
	cfg.PayloadRetention = time.Microsecond
	c.forgets = newBroker(c, st, cfg)
	ctx, cancel := c.bounded(patience)
	defer cancel()
	c.propose(ctx)
	return c
}

func (c *trial) propose(ctx context.Context) {
	var err error
	c.c, err = c.calm.Propose(ctx, c.tenant, proposal("forum"))
	require.NoError(c, err)
}

func (c *trial) application() string {
	return c.shaky.Config().ConnConfig.RuntimeParams["application_name"]
}

func proposal(name string) contract.OperationProposal {
	p := contract.OperationProposal{SurfaceKey: fresh.SurfaceKey, ContractVersion: fresh.ContractVersion}
	for _, id := range items {
		p.Items = append(p.Items, contract.Item{ID: id, Op: "add_forum", Params: json.RawMessage(`{"name":"` + name + ` ` + id + `"}`)})
	}
	return p
}

func (c *trial) id() store.ID { return store.ID{Tenant: c.tenant, Key: c.c.IdempotencyKey} }

func (c *trial) request() broker.Request {
	r := broker.Request{Tenant: c.tenant, Confirmation: c.c, Current: fresh}
	if c.moved {
		r.Current.ContractVersion = movedVersion
	}
	return r
}

func (c *trial) txRequest() broker.TxRequest[pgx.Tx] {
	r := broker.TxRequest[pgx.Tx]{Request: c.request()}
	if c.surface != nil {
		r.Current, r.ReadSurface = contract.CurrentSurfaceState{}, c.readSurface // the first would be stale
	}
	return r
}

// confirm confirms in the trial's mode, and keeps the answer.
func (c *trial) confirm(ctx context.Context, what string, b *broker.Broker[pgx.Tx], pool *pgxpool.Pool) answer {
	a := c.ask(what)
	c.mu.Lock()
	c.taps++
	number := c.taps
	c.mu.Unlock()
	a.confirm = number
	switch c.mode {
	case execute:
		a.res, a.err = b.Execute(ctx, c.request(), func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
			return c.external(ctx, number, it)
		})
	case perItem:
		a.res, a.err = b.ExecutePerItem(ctx, c.request(), c.inTransaction(number))
	case atomically:
		a.res, a.err = b.ExecuteAtomic(ctx, c.txRequest(), c.inTransaction(number))
	case inTx:
		a.res, a.err = c.ownTransaction(ctx, b, pool, number)
	}
	return c.note(a)
}

// errCaller wraps what is not the library's answer, but the driver's to the caller of ExecuteTx.
type errCaller struct{ error }

func (e errCaller) Unwrap() error { return e.error }

// ownTransaction is the caller of ExecuteTx: it runs a transaction again that must be, and asks Lookup after a commit whose end is
// not known.
func (c *trial) ownTransaction(ctx context.Context, b *broker.Broker[pgx.Tx], pool *pgxpool.Pool, number int) (
	*contract.OperationResult, error,
) {
	for try := 0; ; try++ {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, errCaller{err}
		}
		res, err := b.ExecuteTx(ctx, tx, c.txRequest(), c.inTransaction(number))
		if err != nil {
			undo, cancel := c.bounded(storeTimeout)
			_ = tx.Rollback(undo)
			cancel()
			if errors.Is(err, contract.ErrRetryTx) && try < 3 {
				continue
			}
			return nil, err
		}
		if err = tx.Commit(ctx); err == nil {
			return res, nil
		}
		return c.afterCommit(b, err)
	}
}

// afterCommit asks until it is told. A key that is still proposed was not committed, and never will be.
func (c *trial) afterCommit(b *broker.Broker[pgx.Tx], lost error) (*contract.OperationResult, error) {
	ctx, cancel := c.bounded(storeTimeout)
	defer cancel()
	for {
		st, err := b.Lookup(ctx, c.tenant, c.c.IdempotencyKey)
		switch {
		case err == nil && st.Phase == broker.Completed:
			return st.Result, nil
		case err == nil && st.Phase == broker.Proposed:
			return nil, contract.ErrNotConfirmed.With(lost) // what Resolve would say: nothing was done
		case err == nil:
			return nil, fmt.Errorf("an uncompleted claim of a transaction is visible: %s", st.Phase)
		case ctx.Err() != nil:
			return nil, errCaller{lost}
		}
	}
}

var errRefused = errors.New("the registry refuses it")

// external is an executor whose effects are in the ledger.
func (c *trial) external(ctx context.Context, number int, it broker.Item) (broker.Outcome, error) {
	c.invoked(ctx, invocation{confirm: number, item: it.ID, attempt: it.Attempt})
	if cl, found, err := c.claim(ctx, c.tenant, c.c.IdempotencyKey); err == nil && (!found || cl.attempt != it.Attempt || cl.fence != it.Fence) {
		c.Errorf("I2: item %s runs without a committed claim of its attempt", it.ID)
	}
	if it.ID == "b" {
		return broker.Outcome{}, broker.NotApplied(errRefused)
	}
	c.enter(effect{it.ID, it.Attempt})
	return broker.Applied("ref/" + it.ID), nil
}

func (c *trial) enter(e effect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger = append(c.ledger, e)
}

// inTransaction is an executor whose effects are rows.
func (c *trial) inTransaction(number int) broker.TxExecutor[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
		forget := c.invoked(ctx, invocation{confirm: number, item: it.ID, attempt: it.Attempt})
		xid, err := writeEffect(ctx, tx, it)
		if err != nil {
			return broker.Outcome{}, err
		}
		forget(xid)
		if it.ID == "b" {
			return broker.Outcome{}, errRefused
		}
		return broker.Applied("ref/" + it.ID), nil
	}
}

// writeEffect makes an effect that is a row, and tells in which transaction.
func writeEffect(ctx context.Context, tx pgx.Tx, it broker.Item) (xid string, err error) {
	return xid, tx.QueryRow(ctx, `INSERT INTO public.effect (key, item, attempt) VALUES ($1, $2, $3) RETURNING pg_current_xact_id()::text`,
		it.OperationKey, it.ID, it.Attempt).Scan(&xid)
}

// invoked records a call on an executor, after a look at those before it (I9): an effect outside the database is tried once; one
// inside only again after the transaction before was rolled back.
func (c *trial) invoked(ctx context.Context, now invocation) (written func(xid string)) {
	c.mu.Lock()
	before := slices.Clone(c.calls)
	place := len(c.calls)
	c.calls = append(c.calls, now)
	c.mu.Unlock()
	if c.beforeItem != nil {
		c.beforeItem()
	}
	for _, earlier := range before {
		if earlier.item != now.item {
			continue
		}
		if c.mode == execute {
			c.Errorf("I9: item %s is executed again, by confirm %d after confirm %d", now.item, now.confirm, earlier.confirm)
			continue
		}
		if earlier.xid == "" {
			continue
		}
		status, err := c.transaction(context.WithoutCancel(ctx), earlier.xid)
		if err == nil && status != "aborted" {
			c.Errorf("I9: item %s is executed again, by confirm %d, though the transaction of confirm %d is %s",
				now.item, now.confirm, earlier.confirm, status)
		}
	}
	return func(xid string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[place].xid = xid
	}
}

func (c *trial) invocations() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// ask begins an answer.
func (c *trial) ask(what string) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return answer{what: what, asked: len(c.told)}
}

// note keeps and checks an answer.
func (c *trial) note(a answer) answer {
	c.mu.Lock()
	c.told = append(c.told, a)
	c.mu.Unlock()
	c.checkNow(a)
	return a
}

// resolve resolves by reading the effects themselves, never what is stored of them.
func (c *trial) resolve(ctx context.Context, what string, b *broker.Broker[pgx.Tx]) answer {
	a := c.ask(what)
	a.res, a.err = b.Resolve(ctx, broker.Resolution{Tenant: c.tenant, Key: c.c.IdempotencyKey, By: "the trial"},
		func(_ context.Context, it broker.Item) (broker.Verdict, error) {
			if c.beforeReading != nil {
				c.beforeReading()
			}
			for _, e := range c.effects() {
				if e.item == it.ID {
					return broker.FoundApplied("ref/"+it.ID, "the ledger shows it"), nil
				}
			}
			return broker.FoundAbsent("the ledger does not show it"), nil
		})
	return c.note(a)
}

// effects are those that happened, whatever anybody was told.
func (c *trial) effects() []effect {
	if c.mode == execute {
		written := c.read()
		c.mu.Lock()
		defer c.mu.Unlock()
		return append(written, c.ledger...)
	}
	ctx, cancel := c.bounded(patience)
	defer cancel()
	var rows []effect
	c.eventually("the effects can be read", func() (ok bool) { // the server may be recovering
		var err error
		rows, err = c.rows(ctx, c.c.IdempotencyKey)
		return err == nil
	})
	return rows
}
