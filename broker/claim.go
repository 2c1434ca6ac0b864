package broker

import (
	"context"
	"errors"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// claim takes the key for a, or answers: exactly one of held, res and err is set. The store's errors come back unwrapped.
func (b *Broker[TTx]) claim(ctx context.Context, claims store.Claims, a *attempt) (
	held *store.Fenced, res *contract.OperationResult, err error,
) {
	if contract.IsStale(a.Confirmation, a.Current) {
		res, err = b.lookBehind(ctx, claims, a)
		return nil, res, err
	}
	params, err := b.claimParams(a)
	if err != nil {
		return nil, nil, err
	}
	s, err := claims.Claim(ctx, params)
	if err != nil {
		return nil, nil, err
	}
	return b.judge(ctx, claims, a, s)
}

// judge tells from how the key stands after a's claim whether a holds it, or what the answer is.
func (b *Broker[TTx]) judge(ctx context.Context, claims store.Claims, a *attempt, s store.Standing) (
	*store.Fenced, *contract.OperationResult, error,
) {
	if a.holds(s) {
		if err := b.outOfSight(ctx, a, s, nil); err != nil {
			return nil, nil, err
		}
		return a.held(s), nil, nil
	}
	res, err := b.answer(a, s)
	if errors.Is(err, contract.ErrExpired) { // an expired confirm inserts nothing, so it did not wait for one under way
		res, err = b.lookBehind(ctx, claims, a)
	}
	if res == nil && err == nil {
		err = contract.ErrRetryTx // neither claimed nor refused: a snapshot older than what stands
	}
	if err = b.outOfSight(ctx, a, s, err); err != nil {
		return nil, nil, err
	}
	return nil, res, nil
}

func (b *Broker[TTx]) claimParams(a *attempt) (store.ClaimParams, error) {
	p := store.ClaimParams{
		ID: a.keyID(), Digest: a.digest, Attempt: a.id, Mode: a.mode, Lease: b.cfg.Lease, AcceptUnminted: b.cfg.AcceptUnmintedKeys,
		Guards: a.Guards,
	}
	if a.mode == store.ModeExternalProgress {
		p.FirstItem = a.Confirmation.Items[0].ID
	}
	if p.AcceptUnminted {
		content, err := encodeContent(a.Confirmation.Proposal())
		if err != nil {
			return p, err
		}
		p.Content = content
	}
	return p, nil
}

// lookBehind answers a confirm that cannot claim: it looks the key up behind the barrier, so that a first confirm that is
// under way is seen and not contradicted.
func (b *Broker[TTx]) lookBehind(ctx context.Context, claims store.Claims, a *attempt) (*contract.OperationResult, error) {
	s, err := claims.Lookup(ctx, store.LookupParams{ID: a.keyID(), Barrier: true, Guards: a.Guards})
	if err != nil {
		return nil, err
	}
	res, err := b.answer(a, s)
	if err = b.outOfSight(ctx, a, s, err); err != nil {
		return nil, err
	}
	return res, nil
}

// outOfSight corrects an answer that was read in a transaction whose snapshot is older than what stands by now: its owner runs
// it again. That is so for a key that is unknown, not completed, or claimed without the proposal that it may have.
func (b *Broker[TTx]) outOfSight(ctx context.Context, a *attempt, s store.Standing, err error) error {
	if !s.FixedSnapshot {
		return err
	}
	if s.Claim != nil && !s.Claim.Completed && !a.holds(s) {
		return contract.ErrRetryTx
	}
	if s.Proposal != nil || s.Claim != nil && !a.holds(s) {
		return err
	}
	ctx, cancel := b.detached(ctx)
	defer cancel()
	now, lookupErr := b.store.Own().Lookup(ctx, store.LookupParams{ID: a.keyID()})
	if lookupErr != nil || now.Proposal != nil {
		return contract.ErrRetryTx.With(lookupErr)
	}
	return err
}

// authorize asks the configured authoriser; nil allows.
func (b *Broker[TTx]) authorize(ctx context.Context, method string, id store.ID) error {
	if b.cfg.Authorize == nil {
		return nil
	}
	err := b.cfg.Authorize(ctx, Access{Method: method, Tenant: id.Tenant, Key: id.Key})
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*contract.Failure](err); ok {
		return err
	}
	return contract.ErrDenied.With(err)
}

// admit asks the authoriser about a confirm. To one that it denies a guard that is not met and a conflict are still told first, in
// every state of the key.
func (b *Broker[TTx]) admit(ctx context.Context, claims store.Claims, a *attempt) error {
	denied := b.authorize(ctx, a.method, a.keyID())
	if denied == nil {
		return nil
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := claims.Lookup(ctx, store.LookupParams{ID: a.keyID(), Guards: a.Guards})
	if err != nil {
		return err
	}
	if a.conflicts(s) {
		return &contract.ConflictError{Failure: *contract.ErrKeyReused}
	}
	return denied
}

// worthWaiting says whether a confirm was told that its key is running elsewhere, or that a store with one writer is busy, perhaps
// with that.
func (b *Broker[TTx]) worthWaiting(err error) bool {
	return b.cfg.ReplayWait > 0 && (errors.Is(err, contract.ErrInProgress) || errors.Is(err, store.ErrBusy))
}

// await answers a confirm whose key may be running elsewhere: it reads until the first one is completed, the lease is over, the
// caller leaves or ReplayWait has passed (S30). The answer is then what was told before.
func (b *Broker[TTx]) await(ctx context.Context, a *attempt, told error) (*contract.OperationResult, error) {
	const first, most = 10 * time.Millisecond, 250 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, max(b.cfg.ReplayWait, 0))
	defer cancel()
	for pause := first; ; pause = min(2*pause, most) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, told
		case <-timer.C:
		}
		s, err := b.store.Own().Lookup(ctx, store.LookupParams{ID: a.keyID()})
		if err != nil {
			if f, ok := contract.FailureOf(told); ok {
				told = f.With(err) // what was known before the wait is still what is known
			}
			return nil, told
		}
		if s.Claim == nil { // not committed yet; without the barrier nothing else may be concluded
			continue
		}
		if res, err := b.answer(a, s); !errors.Is(err, contract.ErrInProgress) {
			return res, err
		}
	}
}
