package fencetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store"
)

// broker is a broker on the harness's store.
func (k *kit[TTx]) broker() *broker.Broker[TTx] {
	k.Helper()
	return k.brokerOn(k.Store)
}

func (k *kit[TTx]) brokerOn(st store.Store[TTx]) *broker.Broker[TTx] {
	k.Helper()
	b, err := broker.New(st, nil)
	k.ok(err, "a broker on the harness's store")
	return b
}

// mutation is a mutation of c's agent, guarded by c's fence, that writes a line when it is applied.
func (k *kit[TTx]) mutation(c fencing.Caller, operation string) broker.Mutation[TTx] {
	return broker.Mutation[TTx]{
		Tenant: k.Tenant, AgentID: agent, Method: contract.Method{Name: "/agent.v1.AgentService/ExecuteAuthorized"},
		Meta: contract.RequestMeta{
			OperationID: operation, IdempotencyKey: "key of " + operation,
			AgentID: c.Says.AgentID, CellID: c.Says.CellID, BootID: c.Says.BootID,
			SessionGeneration: c.Says.Generation, DispatcherEpoch: string(c.Epoch),
		},
		Digest: contract.NewContent("ExecuteAuthorized").Text("number", "1").Digest(),
		Guard:  func(ctx context.Context, tx TTx) error { return k.Hold(ctx, tx, c) },
		Apply: func(ctx context.Context, tx TTx) (contract.Receipt, error) {
			return contract.Receipt{Result: contract.ResultApplied, Ref: "line/" + operation}, k.Append(ctx, tx, writeLine(c))
		},
	}
}

// external is a mutation whose effect is outside the database, and counted.
func (k *kit[TTx]) external(c fencing.Caller, operation string, calls *atomic.Int64, r contract.Receipt, err error) broker.Mutation[TTx] {
	m := k.mutation(c, operation)
	m.Apply = nil
	m.Invoke = func(context.Context, broker.Call) (contract.Receipt, error) {
		calls.Add(1)
		return r, err
	}
	return m
}

var done = contract.Receipt{Result: contract.ResultApplied, Ref: "call/1"}

func (k *kit[TTx]) ref(operation string) broker.MutationRef {
	return broker.MutationRef{Tenant: k.Tenant, AgentID: agent, OperationID: operation}
}

// mutates carries out m, which must have this result.
func (k *kit[TTx]) mutates(b *broker.Broker[TTx], m broker.Mutation[TTx], want contract.ResultCode) contract.Receipt {
	k.Helper()
	r, err := b.Mutate(k.ctx, m)
	k.ok(err, "a mutation of the current session")
	k.rule(r.Result == want, fmt.Sprint("the receipt says ", want), r)
	return r
}

// wire is a receipt as it is stored and sent, but for its being a replay.
func (k *kit[TTx]) wire(r contract.Receipt) string {
	k.Helper()
	r.Replayed = false
	data, err := r.MarshalJSON()
	k.ok(err, "a receipt's wire form")
	return string(data)
}

// mutationReplays sends one request many times at once, and then again.
func mutationReplays[TTx any](k *kit[TTx]) {
	_, c := k.active()
	b, before := k.broker(), len(k.lines())
	m := k.mutation(c, "operation-1")
	receipts := make([]contract.Receipt, crowd)
	for _, err := range together(times(crowd, func(i int) (err error) {
		for range 3 {
			receipts[i], err = b.Mutate(k.ctx, m)
		}
		return err
	})...) {
		k.ok(err, "each of many deliveries of one request at once")
	}
	for _, r := range receipts {
		k.rule(k.wire(r) == k.wire(receipts[0]), "every delivery of a request is answered with the same receipt, byte for byte",
			k.wire(receipts[0]), k.wire(r))
	}
	again := k.mutates(b, m, contract.ResultApplied)
	k.rule(again.Replayed && k.wire(again) == k.wire(receipts[0]), "a late delivery is answered with the receipt that was stored", again)
	k.rule(len(k.lines()) == before+1, "many deliveries have the effect of one", k.lines()[before:])
	k.checkHistory()
}

// mutationConflicts sends other content under an operation's names.
func mutationConflicts[TTx any](k *kit[TTx]) {
	_, c := k.active()
	b := k.broker()
	m := k.mutation(c, "operation-1")
	first := k.mutates(b, m, contract.ResultApplied)
	before := k.stored()
	for name, change := range map[string]func(m *broker.Mutation[TTx]){
		"content": func(m *broker.Mutation[TTx]) {
			m.Digest = contract.NewContent("ExecuteAuthorized").Text("number", "2").Digest()
		},
		"an idempotency key": func(m *broker.Mutation[TTx]) { m.Meta.IdempotencyKey = "another" },
		"a method":           func(m *broker.Mutation[TTx]) { m.Method.Name = "/agent.v1.AgentService/Execute" },
	} {
		other := m
		change(&other)
		_, err := b.Mutate(k.ctx, other)
		k.refused(err, name+" that differs under one operation is a conflict", contract.Aborted)
	}
	k.rule(before == k.stored(), "a conflict leaves nothing behind", before, k.stored())
	again := k.mutates(b, m, contract.ResultApplied)
	k.rule(k.wire(first) == k.wire(again), "a conflict leaves the first receipt as it is", first, again)
}

// mutationOnce originates one execution by many operations.
func mutationOnce[TTx any](k *kit[TTx]) {
	_, c := k.active()
	b := k.broker()
	var calls atomic.Int64
	won := 0
	for _, err := range together(times(crowd, func(i int) error {
		m := k.external(c, fmt.Sprint("operation-", i), &calls, done, nil)
		m.Identities = []broker.Identity{{Kind: "execution", Value: execution}}
		_, err := b.Mutate(k.ctx, m)
		return err
	})...) {
		if err == nil {
			won++
			continue
		}
		k.refused(err, "an execution has one originate operation", contract.Aborted, contract.AlreadyExists)
	}
	k.rule(won == 1 && calls.Load() == 1, "an execution is originated once", won, calls.Load())
}

// mutationDecided decides once about an execution: that it is refused is a decision too. The same operation again returns the first
// decision (R58), another one is a conflict (R62), and a query by the execution tells the first: see contract.ErrSecondOperation.
func mutationDecided[TTx any](k *kit[TTx]) {
	_, c := k.active()
	b := k.broker()
	decide := func(operation string, result contract.ResultCode) broker.Mutation[TTx] {
		m := k.mutation(c, operation)
		m.Identities = []broker.Identity{{Kind: "decision", Value: execution}}
		m.Apply = func(context.Context, TTx) (contract.Receipt, error) {
			return contract.Receipt{Result: result, Ref: "decision"}, nil
		}
		return m
	}
	first := k.mutates(b, decide("operation-1", contract.ResultRefused), contract.ResultRefused)
	_, err := b.Mutate(k.ctx, decide("operation-2", contract.ResultApplied))
	k.refused(err, "an execution has one decision", contract.Aborted, contract.AlreadyExists)
	again := k.mutates(b, decide("operation-1", contract.ResultApplied), contract.ResultRefused)
	k.rule(k.wire(first) == k.wire(again), "a decision stays what it was at first", first, again)
	st, err := b.QueryMutation(k.ctx, broker.MutationRef{Tenant: k.Tenant, Identity: broker.Identity{Kind: "decision", Value: execution}})
	k.ok(err, "to query a decision by its execution")
	k.rule(k.wire(first) == k.wire(st.Receipt), "a decision is what it was at first, also by its execution", first, st.Receipt)
}

// mutationUnknown looks at the receipt from inside the effect, and makes the effect end without a word.
func mutationUnknown[TTx any](k *kit[TTx]) {
	_, c := k.active()
	b := k.broker()
	var calls atomic.Int64
	m := k.external(c, "operation-1", &calls, contract.Receipt{}, errors.New("no reply"))
	var seen contract.ResultCode
	var seenErr error
	invoke := m.Invoke
	m.Invoke = func(ctx context.Context, call broker.Call) (contract.Receipt, error) {
		if st, err := k.broker().QueryMutation(ctx, k.ref("operation-1")); err != nil {
			seenErr = err
		} else {
			seen = st.Receipt.Result
		}
		return invoke(ctx, call)
	}
	k.mutates(b, m, contract.ResultUnknown)
	k.ok(seenErr, "to query the operation from inside its effect")
	k.rule(seen == contract.ResultUnknown, "UNKNOWN is committed before the effect begins", seen)
	for range 3 {
		r := k.mutates(b, m, contract.ResultUnknown)
		k.rule(r.Replayed, "an operation that is UNKNOWN is not executed again", r)
	}
	k.rule(calls.Load() == 1, "an effect outside is made at most once", calls.Load())
	k.advances(b)
	k.mutates(b, m, contract.ResultApplied)
	k.rule(calls.Load() == 1, "an effect outside is made at most once, also after evidence came", calls.Load())
}

// advances resolves operation-1 by evidence, and then by other evidence, which must change nothing.
func (k *kit[TTx]) advances(b *broker.Broker[TTx]) {
	k.Helper()
	r, err := b.ResolveMutation(k.ctx, k.ref("operation-1"), "reconciler", func(context.Context, broker.Call) (contract.Receipt, error) {
		return contract.Receipt{}, nil
	})
	k.ok(err, "to resolve without evidence")
	k.rule(r.Result == contract.ResultUnknown, "UNKNOWN stays UNKNOWN without evidence", r)
	for _, found := range []contract.Receipt{done, {Result: contract.ResultNotApplied, Detail: "not there"}} {
		r, err := b.ResolveMutation(k.ctx, k.ref("operation-1"), "reconciler", func(context.Context, broker.Call) (contract.Receipt, error) {
			return found, nil
		})
		k.ok(err, "to resolve by evidence")
		k.rule(r.Result == contract.ResultApplied, "UNKNOWN advances by evidence, once, and a terminal receipt never changes", r)
	}
}

// lostCommits is a store whose commits fail, and are rolled back.
type lostCommits[TTx any] struct{ store.Store[TTx] }

func (s lostCommits[TTx]) Commit(ctx context.Context, tx TTx, _ store.Closing) error {
	_ = s.Rollback(ctx, tx)
	return &store.Error{Op: "fencetest: commit", Kind: store.ErrNotCommitted}
}

func mutationUncommitted[TTx any](k *kit[TTx]) {
	_, c := k.active()
	before := k.stored()
	var calls atomic.Int64
	_, err := k.brokerOn(lostCommits[TTx]{k.Store}).Mutate(k.ctx, k.external(c, "operation-1", &calls, done, nil))
	k.rule(err != nil, "a mutation whose commit fails is an error")
	k.rule(calls.Load() == 0, "no effect begins whose UNKNOWN is not committed", calls.Load())
	k.rule(before == k.stored(), "a mutation whose commit failed leaves nothing behind", before, k.stored())
	k.mutates(k.broker(), k.external(c, "operation-1", &calls, done, nil), contract.ResultApplied)
}

// mutationFenced replays an operation of a session that is fenced.
func mutationFenced[TTx any](k *kit[TTx]) {
	o, c := k.active()
	b := k.broker()
	m := k.mutation(c, "operation-1")
	k.mutates(b, m, contract.ResultApplied)
	next := k.activate(o, "boot-2")
	before := k.stored()
	for _, operation := range []string{"operation-1", "operation-2"} {
		r, err := b.Mutate(k.ctx, k.mutation(c, operation))
		k.refused(err, "a fenced caller is told that it is fenced, and not a receipt", fenced...)
		k.rule(r == contract.Receipt{}, "a fenced caller is shown no receipt", r)
	}
	k.rule(before == k.stored(), "a fenced caller changes nothing", before, k.stored())
	_, err := b.QueryMutation(k.ctx, k.ref("operation-2"))
	k.rule(errors.Is(err, broker.ErrNoMutation), "a fenced caller leaves no claim", err)
	again := k.mutates(b, k.mutation(next, "operation-1"), contract.ResultApplied)
	k.rule(again.Replayed, "the current session gets the receipt of its agent's operation", again)
	k.mutates(b, k.mutation(next, "operation-2"), contract.ResultApplied)
	k.checkHistory()
}

// mutationMoved moves each fence while a mutation has been let in by its guard, and has not committed.
func mutationMoved[TTx any](k *kit[TTx], g guarded[TTx]) {
	b, before := k.broker(), len(k.lines())
	moved := make(chan error, 1)
	m := k.mutation(g.c, fmt.Sprint("operation-", before))
	m.Guard = func(_ context.Context, tx TTx) error { return g.check(tx) }
	var started atomic.Bool
	m.Apply = func(_ context.Context, tx TTx) (contract.Receipt, error) {
		if started.CompareAndSwap(false, true) {
			go func() { moved <- k.do(g.move) }()
			time.Sleep(patience)
		}
		return contract.Receipt{Result: contract.ResultApplied, Ref: "line"}, g.write(tx)
	}
	_, err := b.Mutate(k.ctx, m)
	k.ok(<-moved, g.name+": a move")
	if err != nil {
		k.rule(!errors.Is(err, contract.ErrInvalid), g.name+": a mutation is made or refused", err)
	}
	k.checkHistory()
}

// mutationBarrier sets admission by an operation, which is delivered again after the move.
func mutationBarrier[TTx any](k *kit[TTx]) {
	c, generation := k.started()
	b := k.broker()
	setting := func(operation, barrierID string, expected int64) broker.Mutation[TTx] {
		m := k.mutation(c, operation)
		m.Identities = []broker.Identity{{Kind: "barrier", Value: barrierID}}
		m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
			r, err := k.Admissions.Set(ctx, tx, c, k.request(c, barrierID, expected, true), 0)
			if err == nil {
				err = k.Append(ctx, tx, countLine("admission", r))
			}
			return r, err
		}
		return m
	}
	first := k.mutates(b, setting("operation-1", "barrier-1", generation), contract.ResultApplied)
	k.rule(first.Before == generation && first.After == generation+1, "a change of admission moves the generation by one", first)
	for range 3 {
		again := k.mutates(b, setting("operation-1", "barrier-1", generation), contract.ResultApplied)
		k.rule(again.Replayed && k.wire(first) == k.wire(again), "a barrier that is delivered again is answered with its receipt", again)
	}
	_, err := b.Mutate(k.ctx, setting("operation-2", "barrier-1", generation+1))
	k.refused(err, "a barrier is of one operation", contract.Aborted, contract.AlreadyExists)
	_, err = b.Mutate(k.ctx, setting("operation-3", "barrier-2", generation))
	k.refusedAt(generation+1, err, "an expected generation that does not stand is refused", contract.Aborted)
	k.mutates(b, setting("operation-3", "barrier-2", generation+1), contract.ResultApplied)
	k.checkHistory()
}

// mutationPermit consumes a permit by an operation.
func mutationPermit[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	b := k.broker()
	p := k.issues(c, k.reserve(c, "reservation-1"), execution)
	var calls atomic.Int64
	executing := func(operation, executionID string, p fencing.Permit) broker.Mutation[TTx] {
		m := k.external(c, operation, &calls, done, nil)
		m.Identities = []broker.Identity{{Kind: "execution", Value: executionID}, {Kind: "permit", Value: p.ID}}
		m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
			err := k.Permits.Consume(ctx, tx, c, p, now)
			if err == nil {
				err = k.Append(ctx, tx, "once consume "+p.ID)
			}
			return contract.Receipt{}, err
		}
		return m
	}
	first := k.mutates(b, executing("operation-1", execution, p), contract.ResultApplied)
	again := k.mutates(b, executing("operation-1", execution, p), contract.ResultApplied)
	k.rule(k.wire(first) == k.wire(again), "an execution that is delivered again is answered with its receipt", again)
	other := p
	other.ExecutionID = "execution-2"
	_, err := b.Mutate(k.ctx, executing("operation-2", "execution-2", other))
	k.refused(err, "a permit is of one execution", refusals...)
	other = p
	other.ID, other.Token = "permit-2", p.Token+1
	_, err = b.Mutate(k.ctx, executing("operation-3", execution, other))
	k.refused(err, "an execution is of one permit", refusals...)
	k.rule(calls.Load() == 1, "one permit allows one effect", calls.Load())
	k.checkHistory()
}
