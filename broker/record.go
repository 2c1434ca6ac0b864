package broker

import (
	"context"
	"errors"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// ensure makes a fenced write until it is known whether it landed: the fence lets it in only once, so that it can be made
// again. It gives up after StoreTimeout, with the last error.
func (b *Broker[TTx]) ensure(ctx context.Context, a *attempt, write func(context.Context) error, landed func(*store.Claim) bool) error {
	giveUp := time.Now().Add(b.cfg.StoreTimeout)
	for try := 0; ; try++ {
		writeCtx, cancel := b.detached(ctx)
		err := write(writeCtx)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrFenced) && try == 0:
			return err
		case errors.Is(err, store.ErrFenced): // perhaps by this very write, made before
			s, readErr := b.standing(ctx, a)
			if readErr != nil {
				return readErr // nobody knows
			}
			if a.holds(s) && landed(s.Claim) {
				return nil
			}
			return err
		case time.Now().After(giveUp):
			return err
		}
		_ = backOff(context.WithoutCancel(ctx), try+1)
	}
}

// standing reads the key when the end of one of the attempt's own writes is not known: behind the barrier, by when that has
// ended one way or the other.
func (b *Broker[TTx]) standing(ctx context.Context, a *attempt) (store.Standing, error) {
	ctx, cancel := b.detached(ctx)
	defer cancel()
	return b.store.Own().Lookup(ctx, store.LookupParams{ID: a.keyID(), Barrier: true, AwaitWrites: true})
}

// unknown says whether err leaves open what the store did.
func unknown(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return ok && e.Kind == nil
}

// unrecorded is the answer when items have run and that could not be recorded: lost to a raised fence, or ambiguous. What
// the executor said is not told: a later confirm could not tell it again.
func (b *Broker[TTx]) unrecorded(ctx context.Context, a *attempt, held store.Fenced, said []contract.OperationItemOutcome, cause error) (
	*contract.OperationResult, error,
) {
	if errors.Is(cause, store.ErrFenced) {
		b.observeLate(ctx, a, held, said)
		return nil, fromStore(cause)
	}
	s, err := b.standing(ctx, a)
	switch {
	case err != nil:
		s.Claim = nil
	case !a.holds(s): // somebody has taken the key since: what it says is for him to tell
		b.observeLate(ctx, a, held, said)
		return nil, contract.ErrFenced.With(cause)
	case s.Claim.Completed: // it came through after all
		res, err := replay(a.Confirmation, s.Claim)
		return firstRun(res), err
	}
	res, err := ambiguous(a.Confirmation, s.Claim)
	return firstRun(res), err
}

// observeLate records what an attempt that has lost its key says of items outside the database, where the key does not say the
// same: a verdict never flips, but what contradicts it is not dropped. It is told to nobody if it cannot be recorded.
func (b *Broker[TTx]) observeLate(ctx context.Context, a *attempt, held store.Fenced, said []contract.OperationItemOutcome) {
	if a.mode != store.ModeExternal && a.mode != store.ModeExternalProgress {
		return // its effects are undone
	}
	ctx, cancel := b.detached(ctx)
	defer cancel()
	s, err := b.store.Own().Lookup(ctx, store.LookupParams{ID: a.keyID()})
	if err != nil {
		return
	}
	for _, o := range said {
		if o.State == contract.Ambiguous || agrees(s.Claim, o) || forgotten(s.Claim) {
			continue
		}
		_ = b.store.Keep().Observe(ctx, store.ObserveParams{
			Fenced: held, Item: o.ItemID, Outcome: contract.EncodeOutcomes([]contract.OperationItemOutcome{o}),
		})
	}
}

// agrees says whether a completed claim tells the same of an item's effect.
func agrees(claim *store.Claim, o contract.OperationItemOutcome) bool {
	if claim == nil || !claim.Completed {
		return false
	}
	outcomes, err := contract.DecodeOutcomes(claim.Outcomes)
	if err != nil {
		return false
	}
	for _, settled := range outcomes {
		if settled.ItemID == o.ItemID {
			return settled.State != contract.Ambiguous && (settled.State == contract.Applied) == (o.State == contract.Applied)
		}
	}
	return false
}

// forgotten says whether a purge has taken what a completed claim told: nothing can agree with it or contradict it any more.
func forgotten(claim *store.Claim) bool {
	return claim != nil && claim.Completed && claim.Outcomes == nil
}

// firstRun marks what was read back as the answer of the attempt that made it.
func firstRun(res *contract.OperationResult) *contract.OperationResult {
	if res != nil {
		res.Replayed = false
	}
	return res
}

// encodeContent is the form in which content is stored; contentOf reads it.
func encodeContent(p contract.OperationProposal) ([]byte, error) {
	return p.MarshalJSON() // json.Marshal would make six bytes of a <, beyond the limits that it is read with
}
