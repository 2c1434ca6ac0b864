package fencetest

import (
	"context"
	"errors"
	"slices"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store"
)

// fact is what happened to the kit's agent, whoever reports it.
func (k *kit[TTx]) fact(content string) broker.Fact {
	return broker.Fact{Tenant: k.Tenant, Source: agent, ID: "fact-1", Kind: "recording.uploaded", Content: []byte(content)}
}

// report queues a fact under c's fence, in a transaction of its own.
func (k *kit[TTx]) report(b *broker.Broker[TTx], c fencing.Caller, f broker.Fact) (q broker.QueuedFact, err error) {
	err = k.do(func(tx TTx) error {
		if err := k.Hold(k.ctx, tx, c); err != nil {
			return err
		}
		q, err = b.QueueFact(k.ctx, tx, f)
		if errors.Is(err, contract.ErrRetryTx) || errors.Is(err, contract.ErrInProgress) {
			return &store.Error{Op: "fencetest: queue fact", Kind: store.ErrRetryTx, Cause: err}
		}
		return err
	})
	return q, err
}

// published hands on what is queued, and tells the contents.
func (k *kit[TTx]) published(b *broker.Broker[TTx]) (contents []string) {
	k.Helper()
	_, err := b.PublishFacts(k.ctx, k.Tenant, agent, func(_ context.Context, q broker.QueuedFact) error {
		contents = append(contents, string(q.Content))
		return nil
	})
	k.ok(err, "to publish the agent's facts")
	return contents
}

// hands fails the test unless exactly these facts are handed on.
func (k *kit[TTx]) hands(b *broker.Broker[TTx], rule string, contents ...string) {
	k.Helper()
	got := k.published(b)
	k.rule(slices.Equal(got, contents), rule, got)
}

// factOnce reports one fact many times at once, in a later session, and with other content.
func factOnce[TTx any](k *kit[TTx]) {
	o, c := k.active()
	b := k.broker()
	queued := make([]broker.QueuedFact, crowd)
	for _, err := range together(times(crowd, func(i int) (err error) {
		queued[i], err = k.report(b, c, k.fact("first"))
		return err
	})...) {
		k.ok(err, "each of many reports of one fact at once")
	}
	next := k.activate(o, "boot-2")
	again, err := k.report(b, next, k.fact("first"))
	k.ok(err, "a report of the fact in the next session")
	for _, q := range slices.Concat(queued, []broker.QueuedFact{again}) {
		k.rule(q.Ordinal > 0 && q.Ordinal == queued[0].Ordinal, "a fact has one place, however often and in whatever session it is reported",
			queued[0].Ordinal, q.Ordinal)
	}
	_, err = k.report(b, next, k.fact("second"))
	k.refused(err, "other content under a fact's id is a conflict", contract.Aborted)
	_, err = k.report(b, c, k.fact("first"))
	k.refused(err, "a fenced caller reports nothing, not even again", fenced...)
	k.hands(b, "a fact is queued once, as it was first", "first")
}

// factCompletes completes by an operation that queues a fact, and spoils that in every way.
func factCompletes[TTx any](k *kit[TTx]) {
	_, c := k.active()
	b := k.broker()
	completing := func(operation string, f broker.Fact, err error) broker.Mutation[TTx] {
		m := k.mutation(c, operation)
		m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
			q, queueErr := k.brokerOn(k.Store).QueueFact(ctx, tx, f)
			return contract.Receipt{Result: contract.ResultApplied, Ref: "fact/" + q.ID}, errors.Join(queueErr, err)
		}
		return m
	}
	refusal := &contract.Failure{Code: contract.FailedPrecondition, Reason: "fencetest.refused", Effect: contract.EffectNone}
	_, err := b.Mutate(k.ctx, completing("operation-1", k.fact("first"), refusal))
	k.refused(err, "a completion that is refused", contract.FailedPrecondition)
	k.incomplete(b, "a completion that is refused leaves neither a fact nor a receipt")
	_, err = k.brokerOn(lostCommits[TTx]{k.Store}).Mutate(k.ctx, completing("operation-1", k.fact("first"), nil))
	k.rule(err != nil, "a completion whose commit fails is an error")
	k.incomplete(b, "a completion whose commit failed leaves neither a fact nor a receipt")

	m := completing("operation-1", k.fact("first"), nil)
	first := k.mutates(b, m, contract.ResultApplied)
	q, err := b.LookupFact(k.ctx, k.Tenant, agent, "fact-1")
	k.ok(err, "to look up the fact of a completion")
	k.rule(q.Ordinal > 0 && !q.Published, "a completion has queued its fact, and nobody has confirmed it", q)
	_, err = b.Mutate(k.ctx, completing("operation-2", k.fact("second"), nil))
	k.refused(err, "what cannot queue its fact is not completed", contract.Aborted)
	_, err = b.QueryMutation(k.ctx, k.ref("operation-2"))
	k.rule(errors.Is(err, broker.ErrNoMutation), "what cannot queue its fact has no receipt", err)
	k.hands(b, "a completion's fact is handed on", "first")
	again := k.mutates(b, m, contract.ResultApplied)
	k.rule(again.Replayed && k.wire(first) == k.wire(again), "a completion that is delivered again is answered with its receipt", again)
	k.hands(b, "a completion that is delivered again queues nothing")
}

// incomplete fails the test if anything is left of the fact or of the operation that was to queue it.
func (k *kit[TTx]) incomplete(b *broker.Broker[TTx], rule string) {
	k.Helper()
	q, err := b.LookupFact(k.ctx, k.Tenant, agent, "fact-1")
	k.rule(errors.Is(err, broker.ErrNoFact), rule, q, err)
	st, err := b.QueryMutation(k.ctx, k.ref("operation-1"))
	k.rule(errors.Is(err, broker.ErrNoMutation), rule, st, err)
}
