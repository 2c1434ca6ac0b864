package broker

import (
	"context"
	"encoding/json"
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
type Executor func(ctx context.Context, it Item) (Outcome, error)

// Execute carries out a confirmed operation whose effects are outside the database. The claim is committed on its own
// before exec runs, for at most one attempt per item; items run in order. It returns when all have run, even if ctx ends
// before, and stores the outcomes.
//
// Between the check of req.Current and the effect the surface can move; the executor gets the expected version for a
// compare-and-set of its own ([Item.Expected]).
//
// Round trips: 2, or n+1 for n > 1 items with progress; replay 1, stale 1. Errors: *[contract.InvalidError];
// *[contract.ConflictError] (stale, or the key stands for other content); [contract.ErrDenied], [contract.ErrInProgress],
// [contract.ErrNotMinted], [contract.ErrExpired]; [contract.ErrFenced] when another call settled the key meanwhile;
// [contract.ErrUnavailable] when the store could not be used, after which look the key up. When the store fails after items
// have run the answer is not an error but an ambiguous result.
func (b *Broker[TTx]) Execute(ctx context.Context, req Request, exec Executor) (res *contract.OperationResult, err error) {
	defer func(start time.Time) { b.observe(ctx, "execute", start, res, err) }(time.Now())
	mode := store.ModeExternalProgress
	if b.cfg.NoProgress || len(req.Confirmation.Items) == 1 {
		mode = store.ModeExternal
	}
	a, err := b.newAttempt("execute", mode, req)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, contract.ErrUnavailable.With(err)
	}
	if err := b.admit(ctx, b.store.Own(), a); err != nil {
		return nil, fromStore(err)
	}
	deadline := b.leaseEnd()
	held, res, err := b.claimOwn(ctx, a)
	if errors.Is(err, contract.ErrInProgress) && b.cfg.ReplayWait > 0 {
		return b.await(ctx, a)
	}
	if held == nil {
		return res, err
	}
	return b.runExternal(ctx, a, *held, deadline, exec)
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
		return &store.Fenced{ID: a.keyID(), Attempt: a.id, Fence: s.Claim.Fence}, nil, nil
	}
	if res, answered := b.answer(a, s); res != nil || answered != nil {
		return nil, res, answered
	}
	return nil, nil, fromStore(err)
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
			if err := b.progress(ctx, a, held, res.Outcomes[i-1], it.ID); err != nil {
				return b.unrecorded(ctx, a, err)
			}
			deadline = renewed
		}
		res.Outcomes = append(res.Outcomes, runItem(ctx, a.item(i, held), deadline, exec))
	}
	stored := contract.EncodeOutcomes(res.Outcomes)
	if err := b.complete(ctx, a, store.CompleteParams{Fenced: held, Outcomes: stored}); err != nil {
		return b.unrecorded(ctx, a, err)
	}
	return res, nil
}

func runItem(ctx context.Context, it Item, deadline time.Time, exec Executor) contract.OperationItemOutcome {
	if !time.Now().Before(deadline) { // without progress a batch has one lease, and the items before it have used it up
		return contract.OperationItemOutcome{ItemID: it.ID, State: contract.Skipped, Reason: contract.ReasonNotStarted}
	}
	r := runUntil(ctx, deadline, func(ctx context.Context) (Outcome, error) { return exec(ctx, it) })
	return external(it.ID, r.outcome, r.err)
}

func (b *Broker[TTx]) progress(ctx context.Context, a *attempt, held store.Fenced, done contract.OperationItemOutcome, next string) error {
	p := store.ProgressParams{
		Fenced: held, Done: done.ItemID, Outcome: contract.EncodeOutcomes([]contract.OperationItemOutcome{done}),
		Next: next, Lease: b.cfg.Lease,
	}
	return b.ensure(ctx, a,
		func(ctx context.Context) error { return b.store.Own().Progress(ctx, p) },
		func(c *store.Claim) bool { _, started := c.Items[next]; return started })
}

func (b *Broker[TTx]) complete(ctx context.Context, a *attempt, p store.CompleteParams) error {
	return b.ensure(ctx, a,
		func(ctx context.Context) error { return b.store.Own().Complete(ctx, p) },
		func(c *store.Claim) bool { return c.Completed })
}

// ensure makes a fenced write and finds out whether it landed when its end is not known: by reading, and then by writing
// once more what the fence lets in only once.
func (b *Broker[TTx]) ensure(ctx context.Context, a *attempt, write func(context.Context) error, landed func(*store.Claim) bool) error {
	once := func() error {
		ctx, cancel := b.detached(ctx)
		defer cancel()
		return write(ctx)
	}
	err := once()
	if !unknown(err) {
		return err
	}
	if done, err := b.sawLanded(ctx, a, landed); done || err != nil {
		return err
	}
	if err = once(); err == nil {
		return nil
	}
	if done, _ := b.sawLanded(ctx, a, landed); done { // the first one was still on its way and has come first
		return nil
	}
	return err
}

func (b *Broker[TTx]) sawLanded(ctx context.Context, a *attempt, landed func(*store.Claim) bool) (bool, error) {
	s, err := b.standing(ctx, a)
	return err == nil && a.holds(s) && landed(s.Claim), err
}

// standing reads the key behind the barrier: a claim whose end is not known has ended by then.
func (b *Broker[TTx]) standing(ctx context.Context, a *attempt) (store.Standing, error) {
	ctx, cancel := b.detached(ctx)
	defer cancel()
	return b.store.Own().Lookup(ctx, store.LookupParams{ID: a.keyID(), Barrier: true})
}

// unknown says whether err leaves open what the store did.
func unknown(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return ok && e.Kind == nil
}

// unrecorded is the answer when items have run and that could not be recorded: lost to a raised fence, or ambiguous. What
// the executor said is not told: a later confirm could not tell it again.
func (b *Broker[TTx]) unrecorded(ctx context.Context, a *attempt, cause error) (*contract.OperationResult, error) {
	if errors.Is(cause, store.ErrFenced) {
		return nil, fromStore(cause)
	}
	ctx, cancel := b.detached(ctx)
	defer cancel()
	s, err := b.store.Own().Lookup(ctx, store.LookupParams{ID: a.keyID()})
	if err != nil {
		s.Claim = nil
	}
	if a.holds(s) && s.Claim.Completed { // it came through after all
		res, err := replay(a.Confirmation, s.Claim)
		return firstRun(res), err
	}
	res, err := ambiguous(a.Confirmation, s.Claim)
	return firstRun(res), err
}

// firstRun marks what was read back as the answer of the attempt that made it.
func firstRun(res *contract.OperationResult) *contract.OperationResult {
	if res != nil {
		res.Replayed = false
	}
	return res
}

func encodeContent(c contract.OperationConfirmation) ([]byte, error) {
	return json.Marshal(c.Proposal())
}
