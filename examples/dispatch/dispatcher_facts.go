package dispatch

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"slices"
	"sync"
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
)

// ReportExecutionEvent takes a fact: once by its id, with the digest of its content (R94-R96), which is computed here and compared
// with what the sender computed (R97). The session is not in it, so that a fact of an earlier session is the same fact (R98). It is
// handed on through the dispatcher's own outbox, in the same transaction, as what this agent says: under its own source, and never as
// one of the kinds that the dispatcher alone makes.
func (d *dispatcher[TTx]) ReportExecutionEvent(ctx context.Context, q *agentv1.ReportExecutionEventRequest) (
	*agentv1.ReportExecutionEventResponse, error,
) {
	meta, sum := metaOf(q), sha256.Sum256(q.GetContent())
	switch {
	case subtle.ConstantTimeCompare(sum[:], q.GetContentSha256()) != 1:
		return nil, &contract.InvalidError{Path: "/content_sha256", Problem: "must be the SHA-256 of the content"}
	case meta.OperationID != q.GetFactId():
		return nil, &contract.InvalidError{Path: "/meta/operation_id", Problem: "must be the fact's id"}
	}
	m, _ := d.mutation(ctx, "ReportExecutionEvent", meta, contract.NewContent("ReportExecutionEvent").
		Text("fact_id", q.GetFactId()).Text("kind", q.GetKind()).Bytes("content_sha256", sum[:]))
	source := factsOf(m.AgentID)
	m.Identities = []broker.Identity{{Kind: "fact", Value: m.AgentID + "/" + q.GetFactId()}}
	m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
		if slices.Contains(ownKinds, q.GetKind()) {
			return contract.Receipt{}, ErrKind
		}
		err := d.queue(ctx, tx, broker.Fact{Source: source, ID: q.GetFactId(), Kind: q.GetKind(), Content: q.GetContent()})
		return contract.Receipt{Result: contract.ResultApplied, Ref: q.GetFactId()}, err
	}
	receipt, err := answered(d.broker.Mutate(ctx, *m))
	d.queued(source)
	return &agentv1.ReportExecutionEventResponse{Receipt: receipt}, err
}

// The facts that the dispatcher hands on have a source, within which they have their ids and their order: its own ones have one, and
// the reports of each agent another, so that nothing which an agent says can stand for what the dispatcher says, or before it.
const ofDispatcher = "dispatcher"

var ofAgent = factsOf(agentID)

func factsOf(agent string) string { return "agent/" + agent }

// ownKinds are the kinds of the dispatcher's own facts. Receivers tell by the kind what happened: no agent reports one.
var ownKinds = []string{uploaded}

// uploaded says that a recording is where it was granted to be put, and nothing of who receives it (R105).
const uploaded = "recording.uploaded"

// ErrKind is the refusal of a fact of a kind that the dispatcher alone makes.
var ErrKind = &contract.Failure{
	Code: contract.PermissionDenied, Reason: "example.dispatch.kind", Effect: contract.EffectNone,
	Message: "facts of this kind are the dispatcher's own; nothing was recorded",
}

// queue puts a fact into the outbox, in the transaction of whatever it is a fact about (R100).
func (d *dispatcher[TTx]) queue(ctx context.Context, tx TTx, f broker.Fact) error {
	if d.failQueue.Load() > 0 {
		d.failQueue.Add(-1)
		f := *contract.ErrUnavailable
		f.Effect, f.Message = contract.EffectNone, "the outbox cannot be written; nothing was done"
		return &f
	}
	f.Tenant = d.cfg.Tenant
	_, err := d.broker.QueueFact(ctx, tx, f)
	return err
}

// queued wakes the publisher of a source.
func (d *dispatcher[TTx]) queued(source string) {
	select {
	case d.wake[source] <- struct{}{}:
	default:
	}
}

// published is a line of the file that stands for a message queue.
type published struct {
	Source  string `json:"source"`
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Ordinal int64  `json:"ordinal"`
	Content string `json:"content"`
}

// startPublishing publishes the outbox to the queue, each source in its order. A line that is durable is confirmed; what a receiver
// makes of it is not known here (R105).
func (d *dispatcher[TTx]) startPublishing(ctx context.Context, sources []string) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	var file sync.Mutex
	publish := func(_ context.Context, f broker.QueuedFact) error {
		begun := time.Now()
		err := appendLine(&file, d.cfg.Queue, published{f.Source, f.ID, f.Kind, f.Ordinal, string(f.Content)})
		d.cfg.Trace.call(event{From: roleDispatcher, To: "queue", What: f.Kind, Said: "confirmed"}, begun)
		return err
	}
	d.wake = map[string]chan struct{}{}
	for _, source := range sources {
		wake := make(chan struct{}, 1)
		d.wake[source] = wake
		done.Go(func() {
			_ = d.broker.KeepPublishing(ctx, broker.Publishing{Tenant: d.cfg.Tenant, Source: source, Wake: wake, Publish: publish})
		})
	}
	d.publishers = func() { cancel(); done.Wait() }
}

// fact tells how a fact of the outbox stands: QUEUED, or PUBLISHED once the queue has confirmed it.
func (d *dispatcher[TTx]) fact(ctx context.Context, o order) (answer, error) {
	q, err := d.broker.LookupFact(ctx, d.cfg.Tenant, o.Source, o.Fact)
	return answer{Count: q.Ordinal, Text: map[bool]string{false: "QUEUED", true: "PUBLISHED"}[q.Published]}, err
}
