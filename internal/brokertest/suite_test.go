package brokertest

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// The tenants of the tests, with a mark: see everything.
const (
	firmA = "firm-a-" + marker
	firmB = "firm-b-" + marker
	long  = time.Hour
	short = 30 * time.Millisecond // a lease that is over before anyone asks
	// expiry is of proposals that are still confirmed before it; a loaded machine takes its time.
	expiry = 2 * time.Second
)

var fresh = contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}

// bench is one test's broker on one store.
type bench[TTx any] struct {
	*testing.T
	storetest.Harness[TTx]
	*broker.Broker[TTx]
	ctx context.Context
	// mode is the method that confirm uses.
	mode string
	// calls counts the calls on executors made through confirm.
	calls *atomic.Int32
}

// executor is an executor of either mode: write makes an effect of that name in the transaction, if there is one.
type executor func(ctx context.Context, it broker.Item, write func(name string) error) (broker.Outcome, error)

// apply writes one effect named after the item and is applied.
func apply(_ context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
	if err := write(it.ID); err != nil {
		return broker.Outcome{}, err
	}
	return broker.Applied("ref/" + it.ID), nil
}

// never fails the test when it is called.
func (b *bench[TTx]) never(context.Context, broker.Item, func(string) error) (broker.Outcome, error) {
	b.Error("the executor must not run")
	return broker.Outcome{}, nil
}

const (
	execute    = "Execute"
	perItem    = "ExecutePerItem"
	inTx       = "ExecuteTx"
	atomically = "ExecuteAtomic"
)

func newBench[TTx any](t *testing.T, h storetest.Harness[TTx], mode string, cfg *broker.Config) *bench[TTx] {
	t.Helper()
	if cfg == nil {
		cfg = &broker.Config{ReplayWait: -1}
	}
	br, err := broker.New(h.Store, heard(*cfg))
	require.NoError(t, err)
	return &bench[TTx]{T: t, Harness: h, Broker: br, ctx: t.Context(), mode: mode, calls: new(atomic.Int32)}
}

// with is the same bench with another configuration.
func (b *bench[TTx]) with(cfg broker.Config) *bench[TTx] {
	b.Helper()
	n := newBench(b.T, b.Harness, b.mode, &cfg)
	n.calls = b.calls
	return n
}

// proposal has items that marked names, with marked parameters.
func proposal(ids ...string) contract.OperationProposal {
	p := contract.OperationProposal{SurfaceKey: fresh.SurfaceKey, ContractVersion: fresh.ContractVersion}
	for _, id := range ids {
		p.Items = append(p.Items, contract.Item{ID: marked(id), Op: "add_forum", Params: json.RawMessage(`{"name":"forum ` + marked(id) + `"}`)})
	}
	return p
}

// propose proposes items with these ids for firmA.
func (b *bench[TTx]) propose(ids ...string) contract.OperationConfirmation {
	b.Helper()
	c, err := b.Propose(b.ctx, firmA, proposal(ids...))
	require.NoError(b, err)
	return c
}

func request(c contract.OperationConfirmation) broker.Request {
	return broker.Request{Tenant: firmA, Confirmation: c, Current: fresh}
}

// inDatabase says whether effects are rows of the store's database.
func (b *bench[TTx]) inDatabase() bool { return b.mode != execute }

// confirm executes in the bench's mode. In a caller's transaction it commits what was answered without an error, and rolls back
// else.
func (b *bench[TTx]) confirm(req broker.Request, exec executor) (*contract.OperationResult, error) {
	switch b.mode {
	case execute:
		return b.Execute(b.ctx, req, func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
			b.calls.Add(1)
			return exec(ctx, it, func(string) error { return nil })
		})
	case perItem:
		return b.ExecutePerItem(b.ctx, req, b.txExecutor(exec))
	case atomically:
		return b.ExecuteAtomic(b.ctx, broker.TxRequest[TTx]{Request: req}, b.txExecutor(exec))
	}
	tx, err := b.Harness.Begin(b.ctx)
	if err != nil {
		return nil, err
	}
	res, err := b.ExecuteTx(b.ctx, tx, broker.TxRequest[TTx]{Request: req}, b.txExecutor(exec))
	if err != nil {
		_ = b.Rollback(b.ctx, tx)
		return nil, err
	}
	return res, b.Commit(b.ctx, tx)
}

func (b *bench[TTx]) txExecutor(exec executor) broker.TxExecutor[TTx] {
	return func(ctx context.Context, tx TTx, it broker.Item) (broker.Outcome, error) {
		b.calls.Add(1)
		return exec(ctx, it, func(name string) error { return b.Effect(ctx, tx, name) })
	}
}

// crashed leaves the key as a process does that was killed after its claim, and while the item first ran, if it is given: claimed
// for the lease, never completed.
func (b *bench[TTx]) crashed(c contract.OperationConfirmation, lease time.Duration, first string) {
	b.Helper()
	digest, err := contract.DigestOf(c.Proposal())
	require.NoError(b, err)
	mode := store.ModeExternal
	if first != "" {
		mode, first = store.ModeExternalProgress, marked(first)
	}
	_, err = b.Store.Own().Claim(b.ctx, store.ClaimParams{
		ID: store.ID{Tenant: firmA, Key: c.IdempotencyKey}, Digest: digest, Attempt: uuid.New(), Mode: mode, Lease: lease, FirstItem: first,
	})
	require.NoError(b, err)
}

// phase is how the key stands for firmA.
func (b *bench[TTx]) phase(c contract.OperationConfirmation) broker.Phase {
	b.Helper()
	st, err := b.Lookup(b.ctx, firmA, c.IdempotencyKey)
	require.NoError(b, err)
	return st.Phase
}

func (b *bench[TTx]) effects(name string) int {
	b.Helper()
	n, err := b.Count(b.ctx, name)
	require.NoError(b, err)
	return n
}

func states(r *contract.OperationResult) []contract.OutcomeState {
	var s []contract.OutcomeState
	for _, o := range r.Outcomes {
		s = append(s, o.State)
	}
	return s
}

// run runs every case on one store, in every mode where the case does not name one.
func run[TTx any](t *testing.T, harness func(*testing.T) storetest.Harness[TTx]) {
	type test func(*bench[TTx])
	one := func(mode, name string, fn test) {
		t.Run(mode+"/"+name, func(t *testing.T) {
			t.Parallel()
			fn(newBench(t, harness(t), mode, nil))
		})
	}
	for name, fn := range map[string]test{
		"S12 S17 S18 a second confirm replays, byte for byte":     replays[TTx],
		"S13 a stale confirm is refused before any claim":         staleIsRefused[TTx],
		"S19 a replay comes before staleness":                     replayBeforeStale[TTx],
		"S14 S8 a claim never completed is ambiguous":             crashedIsAmbiguous[TTx],
		"S20 other content is a conflict in every state":          otherContentConflicts[TTx],
		"S11 S16 unknown and foreign keys get one answer":         unknownKeys[TTx],
		"S16 S11 accepted keys are each tenant's own":             acceptedKeys[TTx],
		"S31 an expired proposal is refused and stays readable":   expiredIsRefused[TTx],
		"S29 a cancelled key never runs":                          cancelledNeverRuns[TTx],
		"S33 the authoriser comes before what is stored":          authoriser[TTx],
		"S20 S33 S17 S13 the order of answers":                    orderOfAnswers[TTx],
		"S15 S7 one failing item of three":                        oneItemFails[TTx],
		"S15 a panic, a Goexit and a silent executor":             misbehaviour[TTx],
		"S32 the executor gets fence, attempt and item key":       itemIdentity[TTx],
		"S12 25 concurrent confirms run once":                     concurrentConfirms[TTx],
		"S17 odd outcomes are stored and replayed as told":        oddOutcomes[TTx],
		"S4 S1 bad requests are refused before the store is used": badRequests[TTx],
		"S22 refusals name no tenant, key or content":             refusalsAreSafe[TTx],
		"S22 the canary finds no mark in logs, events and errors": canary[TTx],
		"S29 a purged key is settled, and never runs again":       purgedNeverRuns[TTx],
	} {
		for _, mode := range []string{execute, perItem, inTx, atomically} {
			one(mode, name, fn)
		}
	}
	one(execute, "S30 a double tap waits and replays", doubleTapWaits[TTx])
	one(execute, "S14 progress is what a crash leaves", progressSurvives[TTx])
	one(execute, "S8 what an error says of the effect", externalErrors[TTx])
	one(execute, "S14 a caller that leaves costs no outcome", callerLeaves[TTx])
	one(execute, "S14 an executor that does not return is left behind", executorHangs[TTx])
	one(execute, "S14 without progress a batch has one lease", oneLease[TTx])
	one(execute, "S21 S14 a crash is resolved by reading", resolveReads[TTx])
	one(execute, "S21 what stays unknown can be resolved again", resolveAgain[TTx])
	one(execute, "S21 a reader that fails has not told", readersFail[TTx])
	one(execute, "S21 concurrent resolvers agree", resolversAgree[TTx])
	one(execute, "S21 S32 no two readers are told the same fence", resolversRead[TTx])
	one(execute, "S29 unresolved keys are listed in pages", listUnresolved[TTx])
	one(inTx, "S28a rollback leaves neither claim nor effect", rollbackLeavesNothing[TTx])
	one(inTx, "S28a a refusal leaves the transaction usable", refusalLeavesUsable[TTx])
	for _, mode := range []string{inTx, atomically} {
		one(mode, "S15 an outcome without effect is undone", nothingToKeepIsUndone[TTx])
		one(mode, "S13 the surface is read inside the transaction", readSurface[TTx])
		one(mode, "S4 more than 64 items are refused", tooManyItems[TTx])
	}
	one(perItem, "S15 an outcome without effect is undone", nothingToKeepIsUndone[TTx])
	one(perItem, "S21 S14 a crash between items needs no reader", perItemCrash[TTx])
	one(perItem, "S4 batches of any size", manyItems[TTx])
	one(atomically, "S12 a caller that leaves leaves nothing behind", atomicCallerLeaves[TTx])
	runGuards(func(mode, name string, fn func(*bench[TTx])) { one(mode, name, fn) })
	runMutations(t, harness)
}
