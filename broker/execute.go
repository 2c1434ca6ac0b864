package broker

import (
	"context"
	"errors"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Executor carries out one item outside the database. It is called at most once per item and key, by all processes together
// and for all time.
//
// Its context ends with the lease, not with the caller's: once claimed, an operation is carried out though the client hangs
// up. An error beats the outcome. An error leaves the item ambiguous, unless it says that nothing happened: it is marked by
// [NotApplied], or it is a [contract.Failure] with a code whose effect is none. A panic leaves it ambiguous. None of them
// keeps the other items from running.
//
// The text of an error becomes the item's detail, cut to [contract.MaxDetail] bytes: it is stored, replayed and sent to the client.
// Of an SQL error only the SQLSTATE is kept, or the constraint that it names, since databases quote values. Return a text of your
// own where others may do so, too.
type Executor func(ctx context.Context, it Item) (Outcome, error)

// Execute carries out a confirmed operation whose effects are outside the database. The claim is committed on its own
// before exec runs, for at most one attempt per item; items run in order. It returns when all have run, even if ctx ends
// before, and stores the outcomes.
//
// Between the check of req.Current and the effect the surface can move; the executor gets the expected version for a
// compare-and-set of its own ([Item.Expected]).
//
// Round trips: 2, or n+1 for n > 1 items with progress; replay 1, stale 1. Errors: *[contract.InvalidError];
// [contract.ErrGuardNotMet]; *[contract.ConflictError] (stale, or the key stands for other content); [contract.ErrDenied],
// [contract.ErrInProgress], [contract.ErrNotMinted], [contract.ErrExpired]; [contract.ErrFenced] when another call settled the
// key meanwhile; [contract.ErrUnavailable] when the store could not be used, after which look the key up. When the store fails
// after items have run the answer is not an error but an ambiguous result.
func (b *Broker[TTx]) Execute(ctx context.Context, req Request, exec Executor) (res *contract.OperationResult, err error) {
	defer func(start time.Time) { b.observe(ctx, "execute", start, res, err) }(time.Now())
	mode := store.ModeExternalProgress
	if b.cfg.NoProgress || len(req.Confirmation.Items) == 1 {
		mode = store.ModeExternal
	}
	a, err := b.newAttempt("execute", mode, req, exec == nil)
	if err != nil {
		return nil, err
	}
	deadline := b.leaseEnd()
	held, res, err := b.enter(ctx, a)
	if held == nil {
		return res, err
	}
	return b.runExternal(ctx, a, *held, deadline, exec)
}

// enter is the common start of the modes that commit their claim before anything runs: exactly one of held, res and err is set.
func (b *Broker[TTx]) enter(ctx context.Context, a *attempt) (held *store.Fenced, res *contract.OperationResult, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, a.undone(err)
	}
	if err := b.admit(ctx, b.store.Own(), a); err != nil {
		return nil, nil, fromStore(err)
	}
	held, res, err = b.claimOwn(ctx, a)
	if b.worthWaiting(err) {
		res, err = b.await(ctx, a, err)
	}
	return held, res, err
}

// claimOwn claims in a transaction of the store's own. When its end is not known, the attempt looks for itself.
func (b *Broker[TTx]) claimOwn(ctx context.Context, a *attempt) (*store.Fenced, *contract.OperationResult, error) {
	claimCtx, cancel := b.detached(ctx)
	defer cancel()
	held, res, err := b.claim(claimCtx, b.store.Own(), a)
	if !unknown(err) {
		return held, res, fromStore(err)
	}
	s, lookupErr := b.standing(ctx, a)
	if lookupErr != nil {
		return nil, nil, unavailable(errors.Join(err, lookupErr))
	}
	if a.holds(s) {
		return a.held(s), nil, nil
	}
	if len(a.Guards) > 0 { // they may not have been checked
		if s, lookupErr = b.underGuards(ctx, a); lookupErr != nil {
			return nil, nil, fromStore(lookupErr)
		}
	}
	if res, answered := b.answer(a, s); res != nil || answered != nil {
		return nil, res, answered
	}
	return nil, nil, fromStore(err)
}

// underGuards reads the key if its guards are met.
func (b *Broker[TTx]) underGuards(ctx context.Context, a *attempt) (store.Standing, error) {
	ctx, cancel := b.detached(ctx)
	defer cancel()
	return b.store.Own().Lookup(ctx, store.LookupParams{ID: a.keyID(), Guards: a.Guards})
}

// runExternal runs the items under the claim, with the progress of each committed before the next one starts.
func (b *Broker[TTx]) runExternal(ctx context.Context, a *attempt, held store.Fenced, deadline time.Time, exec Executor) (
	*contract.OperationResult, error,
) {
	items := a.Confirmation.Items
	res := &contract.OperationResult{IdempotencyKey: held.Key}
	for i, it := range items {
		if i > 0 && a.mode == store.ModeExternalProgress {
			renewed := b.leaseEnd()
			err := b.progress(ctx, a, held, res.Outcomes[i-1], it.ID)
			switch {
			case err == nil:
				deadline = renewed
			case b.leaseRanOut(ctx, a, err):
				deadline = time.Time{}
			default:
				return b.unrecorded(ctx, a, held, res.Outcomes, err)
			}
		}
		res.Outcomes = append(res.Outcomes, b.runItem(ctx, a, held, i, deadline, exec))
	}
	return b.finish(ctx, a, held, res)
}

// leaseRanOut says whether progress was refused because the lease had ended, though the key is still the attempt's own. No
// further item starts then, but those that have run can still be recorded.
func (b *Broker[TTx]) leaseRanOut(ctx context.Context, a *attempt, err error) bool {
	if !errors.Is(err, store.ErrFenced) {
		return false
	}
	s, err := b.standing(ctx, a)
	return err == nil && a.holds(s) && !s.Claim.Completed
}

// finish stores the outcomes of an attempt whose items have all run, and tells them.
func (b *Broker[TTx]) finish(ctx context.Context, a *attempt, held store.Fenced, res *contract.OperationResult) (
	*contract.OperationResult, error,
) {
	if err := b.complete(ctx, a, completion(held, res.Outcomes)); err != nil {
		return b.unrecorded(ctx, a, held, res.Outcomes, err)
	}
	return res, nil
}

// completion is what completes a claim with outcomes.
func completion(held store.Fenced, outcomes []contract.OperationItemOutcome) store.CompleteParams {
	p := store.CompleteParams{Fenced: held, Outcomes: contract.EncodeOutcomes(outcomes)}
	for _, o := range outcomes {
		p.Unsettled = p.Unsettled || o.State == contract.Ambiguous
	}
	return p
}

func (b *Broker[TTx]) runItem(ctx context.Context, a *attempt, held store.Fenced, i int, deadline time.Time, exec Executor) (
	out contract.OperationItemOutcome,
) {
	it := a.item(i, held)
	if !time.Now().Before(deadline) { // the items before it have used the lease up
		return notStarted(it.ID)
	}
	r := runUntil(ctx, deadline,
		func(ctx context.Context) (Outcome, error) { return exec(ctx, it) },
		func(r returned[Outcome]) {
			b.observeLate(ctx, a, held, []contract.OperationItemOutcome{external(it.ID, r)})
		})
	return external(it.ID, r)
}

func notStarted(itemID string) contract.OperationItemOutcome {
	return contract.OperationItemOutcome{ItemID: itemID, State: contract.Skipped, Reason: contract.ReasonNotStarted}
}

func (b *Broker[TTx]) progress(ctx context.Context, a *attempt, held store.Fenced, done contract.OperationItemOutcome, next string) error {
	p := store.ProgressParams{
		Fenced: held, Done: done.ItemID, Outcome: contract.EncodeOutcomes([]contract.OperationItemOutcome{done}),
		Next: next, Lease: b.cfg.Lease,
	}
	return b.ensure(ctx, a,
		func(ctx context.Context) error { return b.store.Own().Progress(ctx, p) },
		func(c *store.Claim) bool {
			if next == "" {
				return c.Items[done.ItemID] != nil
			}
			_, started := c.Items[next]
			return started
		})
}

func (b *Broker[TTx]) complete(ctx context.Context, a *attempt, p store.CompleteParams) error {
	return b.ensure(ctx, a,
		func(ctx context.Context) error { return b.store.Own().Complete(ctx, p) },
		func(c *store.Claim) bool { return c.Completed })
}
