package broker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// StatusReader reads from the live system what became of one item. It must not write the effect. Item carries the raised fence:
// a target that takes fencing tokens can be told it, so that a late call of the attempt before is refused.
//
// An error leaves the item unknown, with the error's text as the reason.
type StatusReader func(ctx context.Context, it Item) (Verdict, error)

// Verdict is what a StatusReader found. Its zero value says nothing and leaves the item unknown.
type Verdict struct {
	state         contract.OutcomeState
	reason        contract.Reason
	ref, evidence string
	final         bool
}

// FoundApplied says that the effect is there; ref names it in the target's terms, evidence says how it was found.
func FoundApplied(ref, evidence string) Verdict {
	return Verdict{state: contract.Applied, reason: contract.ReasonFoundApplied, ref: ref, evidence: evidence, final: true}
}

// FoundAbsent says that the effect is not there, and how that was found. It is provisional: a call of the attempt before that
// is still on its way could contradict it, unless the target refuses one (see [Verdict.Final]).
func FoundAbsent(evidence string) Verdict {
	return Verdict{state: contract.Failed, reason: contract.ReasonFoundAbsent, evidence: evidence}
}

// StillUnknown says that it cannot be told, and why. The item stays ambiguous; Resolve may be called again.
func StillUnknown(why string) Verdict {
	return Verdict{state: contract.Ambiguous, reason: contract.ReasonStillUnknown, evidence: why, final: true}
}

// Final says that no late call can have an effect any more: the target refuses the item's key or the lower fence from now on.
func (v Verdict) Final() Verdict {
	v.final = true
	return v
}

func (v Verdict) outcome(itemID, by string) contract.OperationItemOutcome {
	if v.state == "" {
		v = StillUnknown("the reader said nothing")
	}
	out := contract.OperationItemOutcome{
		ItemID: itemID, State: v.state, Ref: v.ref, Reason: v.reason, Detail: v.evidence, By: by, Provisional: !v.final,
	}
	return out.Clean()
}

// Resolution names the key to resolve and who does it.
type Resolution struct {
	Tenant string
	Key    uuid.UUID
	By     string // who stands for the verdicts: stored with them; required
}

// Resolve settles a key whose outcome is not known, by reading: it raises the fence, so that an attempt that wakes up late can
// no longer record anything (nor, in ExecutePerItem, write anything), asks read about each item that is not known, and records
// the verdicts. No executor ever runs.
//
// An item that is recorded, or known not to have started, needs no reader; for keys of ExecutePerItem read may be nil. Items that
// stay unknown can be resolved again. Resolve is idempotent, a verdict never flips, and a settled or cancelled key is replayed.
// A reader gets the caller's context, within the lease: if the caller leaves, the rest stays unknown, and that is recorded.
//
// Errors: *[contract.InvalidError]; [contract.ErrDenied]; [contract.ErrNotMinted]; [contract.ErrNotConfirmed];
// [contract.ErrInProgress] while the lease runs; [contract.ErrFenced] when another Resolve was quicker: read its result;
// [contract.ErrUnavailable], after which it may be called again.
func (b *Broker[TTx]) Resolve(ctx context.Context, r Resolution, read StatusReader) (res *contract.OperationResult, err error) {
	defer func(start time.Time) { b.observe(ctx, "resolve", start, res, err) }(time.Now())
	if err := contract.ValidateText("/by", r.By, contract.MaxBy); err != nil {
		return nil, err
	}
	s, err := b.read(ctx, "resolve", r.Tenant, r.Key)
	if err != nil {
		return nil, err
	}
	c, err := contentOf(r.Key, s)
	switch {
	case err != nil:
		return nil, err
	case s.Claim == nil:
		return nil, contract.ErrNotConfirmed
	case s.Claim.Completed && !s.Claim.Unsettled:
		return replay(c, s.Claim)
	case s.Claim.Completed:
		return b.settle(ctx, r, c, s.Claim, read)
	case !s.Claim.LeaseOver:
		return nil, contract.ErrInProgress
	}
	return b.seize(ctx, r, c, read)
}

// seize takes an uncompleted claim from its attempt, reads, and completes it.
func (b *Broker[TTx]) seize(ctx context.Context, r Resolution, c contract.OperationConfirmation, read StatusReader) (
	*contract.OperationResult, error,
) {
	a, err := b.resolver(r, c)
	if err != nil {
		return nil, err
	}
	deadline := b.leaseEnd()
	s, err := b.seizeKey(ctx, a)
	if err != nil {
		return nil, fromStore(err)
	}
	if !a.holds(s) {
		return told(c, s.Claim)
	}
	held := *a.held(s)
	known, err := underRaisedFence(c, s.Claim)
	if err != nil {
		return nil, err
	}
	res := &contract.OperationResult{IdempotencyKey: r.Key, Outcomes: b.verdicts(ctx, a, held, r.By, known, deadline, read)}
	if err := b.complete(ctx, a, completion(held, res.Outcomes)); err != nil {
		return nil, fromStore(err)
	}
	return res, nil
}

// seizeKey takes an uncompleted claim whose lease is over for a, and tells how the key stands after that.
func (b *Broker[TTx]) seizeKey(ctx context.Context, a *attempt) (store.Standing, error) {
	seizeCtx, cancel := b.detached(ctx)
	defer cancel()
	s, err := b.store.Keep().Seize(seizeCtx, store.SeizeParams{ID: a.keyID(), Attempt: a.id, Lease: b.cfg.Lease})
	if unknown(err) {
		s, err = b.standing(ctx, a)
	}
	return s, err
}

// settle reads again what a completed claim left ambiguous, under a fence that was raised before: no two readers are told the same.
func (b *Broker[TTx]) settle(ctx context.Context, r Resolution, c contract.OperationConfirmation, claim *store.Claim, read StatusReader) (
	*contract.OperationResult, error,
) {
	a, err := b.resolver(r, c)
	if err != nil {
		return nil, err
	}
	before, err := replay(c, claim)
	if err != nil {
		return nil, err
	}
	held := store.Fenced{ID: a.keyID(), Attempt: claim.Attempt, Fence: claim.Fence}
	if err := b.settleClaim(ctx, a, completion(held, before.Outcomes)); err != nil {
		return nil, fromStore(err)
	}
	held.Fence++ // which Settle has raised
	res := &contract.OperationResult{
		IdempotencyKey: r.Key, Outcomes: b.verdicts(ctx, a, held, r.By, before.Outcomes, b.leaseEnd(), read),
	}
	if err := b.settleClaim(ctx, a, completion(held, res.Outcomes)); err != nil {
		return nil, fromStore(err)
	}
	return res, nil
}

// settleClaim records outcomes with a completed claim and raises its fence, in the place of complete for one that is not.
func (b *Broker[TTx]) settleClaim(ctx context.Context, _ *attempt, p store.CompleteParams) error {
	ctx, cancel := b.detached(ctx)
	defer cancel()
	return b.store.Keep().Settle(ctx, p)
}

// resolver is the attempt of a Resolve.
func (b *Broker[TTx]) resolver(r Resolution, c contract.OperationConfirmation) (*attempt, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, unavailable(err)
	}
	return &attempt{Request: Request{Tenant: r.Tenant, Confirmation: c}, method: "resolve", id: id}, nil
}

// underRaisedFence is what is known of the items of a claim whose fence was raised: what is recorded, and that what was not
// started by then never will be. What remains ambiguous is for a reader.
func underRaisedFence(c contract.OperationConfirmation, claim *store.Claim) ([]contract.OperationItemOutcome, error) {
	var outcomes []contract.OperationItemOutcome
	for _, it := range c.Items {
		o, err := recorded(claim, it.ID)
		if err != nil {
			return nil, err
		}
		_, started := claim.Items[it.ID]
		switch {
		case started:
		case claim.Mode == store.ModeExternalProgress:
			o = notStarted(it.ID)
		case claim.Mode == store.ModePerItem:
			o = contract.OperationItemOutcome{ItemID: it.ID, State: contract.Skipped, Reason: contract.ReasonNotCommitted}
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

// verdicts asks read about each ambiguous item.
func (b *Broker[TTx]) verdicts(ctx context.Context, a *attempt, held store.Fenced, by string, known []contract.OperationItemOutcome,
	deadline time.Time, read StatusReader,
) []contract.OperationItemOutcome {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	outcomes := make([]contract.OperationItemOutcome, len(known))
	for i, o := range known {
		if o.State == contract.Ambiguous {
			o = ask(ctx, a.item(i, held), by, read)
		}
		outcomes[i] = o
	}
	return outcomes
}

// ask runs the reader for one item. A reader that fails, panics or does not return in time has not told.
func ask(ctx context.Context, it Item, by string, read StatusReader) contract.OperationItemOutcome {
	if read == nil {
		return StillUnknown("no reader was given").outcome(it.ID, by)
	}
	if err := ctx.Err(); err != nil {
		return StillUnknown("not read: "+err.Error()).outcome(it.ID, by)
	}
	done := start(func() (Verdict, error) { return read(ctx, it) })
	select {
	case r := <-done:
		if r.err != nil {
			r.value = StillUnknown(r.text)
		}
		return r.value.outcome(it.ID, by)
	case <-ctx.Done():
		return StillUnknown("the reader did not return in time").outcome(it.ID, by)
	}
}
