package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// ExecuteAtomic is [Broker.ExecuteTx] in a transaction of the broker's own: it begins, commits, runs the transaction again after
// a serialization failure or a deadlock, and finds out what became of a commit whose reply was lost. Its result is final, and it
// commits when items have failed, too: those are undone alone. Where all items are wanted or none, use ExecuteTx.
//
// exec may therefore be called again for an item whose writes were rolled back; it should do nothing but write through tx. It
// gets the caller's context: a caller that leaves before the commit leaves nothing behind. At most [MaxTxItems] items.
//
// Round trips: 2n+3 with begin and commit; four more, and its own, with ReadSurface. Errors as for [Broker.Execute];
// [contract.ErrUnavailable] with EffectNone when nothing was done under the key, and that is known.
func (b *Broker[TTx]) ExecuteAtomic(ctx context.Context, req TxRequest[TTx], exec TxExecutor[TTx]) (
	res *contract.OperationResult, err error,
) {
	defer func(start time.Time) { b.observe(ctx, "execute_atomic", start, res, err) }(time.Now())
	if err := fitsTransaction(req.Request); err != nil {
		return nil, err
	}
	a, err := b.newAttempt("execute_atomic", store.ModeAtomic, req.Request, exec == nil)
	if err != nil {
		return nil, err
	}
	if err := b.admit(ctx, b.store.Own(), a); err != nil {
		return nil, fromStore(err)
	}
	err = again(ctx, a, func() (err error) {
		res, err = b.atomicOnce(ctx, req, a, exec)
		return err
	})
	if err = fromStore(err); b.worthWaiting(err) {
		return b.await(ctx, a, err)
	}
	return res, err
}

// again runs a transaction once, and again after a serialization failure or a deadlock, each time as an attempt of its own.
func again(ctx context.Context, a *attempt, once func() error) error {
	for try := range maxTries {
		a.owned = false // somebody else may have the key since the try before
		if err := backOff(ctx, try); err != nil {
			return a.undone(err)
		}
		err := once()
		if !errors.Is(err, store.ErrRetryTx) && !errors.Is(err, contract.ErrRetryTx) {
			return err
		}
		if a.id, err = uuid.NewRandom(); err != nil {
			return a.undone(err)
		}
	}
	return a.undone(contract.ErrRetryTx)
}

// maxTries bounds how often a transaction is run that meets serialization failures or deadlocks.
const maxTries = 4

// backOff waits before try, counted from 0: not at all before the first, then longer each time, at random.
func backOff(ctx context.Context, try int) error {
	if try == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(jitter(20 * time.Millisecond << min(try, 6)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// jitter is a random time, at most so long.
func jitter(most time.Duration) time.Duration { return rand.N(most) } //nolint:gosec // not a secret

// undone is the refusal of an attempt that certainly did nothing. That nothing at all was done is known only if it held the key:
// else an earlier one may have, and a person who taps again must not be told otherwise.
func (a *attempt) undone(cause error) error {
	f := contract.ErrUnavailable.With(cause)
	f.Message = idleMessage
	if a.owned {
		f.Effect, f.Message = contract.EffectNone, "the transaction was not committed; nothing was done; confirm again"
	}
	return f
}

const idleMessage = "this request did nothing; what an earlier one did is not known; read it under the same key, or send the same again"

// atomicOnce runs the whole operation in one transaction, once.
func (b *Broker[TTx]) atomicOnce(ctx context.Context, req TxRequest[TTx], a *attempt, exec TxExecutor[TTx]) (
	*contract.OperationResult, error,
) {
	if req.ReadSurface == nil && contract.IsStale(a.Confirmation, a.Current) {
		ctx, cancel := b.bounded(ctx)
		defer cancel()
		return b.lookBehind(ctx, b.store.Own(), a)
	}
	tx, held, res, err := b.beginAtomic(ctx, req, a)
	if held == nil {
		return res, err
	}
	outcomes, err := b.runTx(ctx, tx, a, *held, exec)
	endCtx, cancel := b.detached(ctx)
	defer cancel()
	if err != nil {
		if ended := b.store.Rollback(endCtx, tx); errors.Is(ended, store.ErrTxEnded) {
			err = ended
		}
		return nil, a.uncommitted(err)
	}
	res = &contract.OperationResult{IdempotencyKey: held.Key, Outcomes: outcomes}
	complete := completion(*held, outcomes)
	err = b.store.Commit(endCtx, tx, store.Closing{Complete: &complete})
	if unknown(err) {
		return b.committed(ctx, a, res, err)
	}
	if err != nil {
		return nil, a.uncommitted(err)
	}
	return res, nil
}

// uncommitted keeps what the transaction's owner acts on, and says of everything else that it was undone.
func (a *attempt) uncommitted(err error) error {
	if errors.Is(err, store.ErrRetryTx) || errors.Is(err, store.ErrTxEnded) {
		return err
	}
	return a.undone(err)
}

// beginAtomic begins the transaction and claims in it. Without a claim there is no transaction left.
func (b *Broker[TTx]) beginAtomic(ctx context.Context, req TxRequest[TTx], a *attempt) (
	tx TTx, held *store.Fenced, res *contract.OperationResult, err error,
) {
	o := store.Opening{ID: a.keyID()}
	if req.ReadSurface == nil { // the claim can ride with BEGIN
		p, err := b.claimParams(a)
		if err != nil {
			return tx, nil, nil, err
		}
		o.Claim = &p
	}
	beginCtx, begun := b.bounded(ctx)
	defer begun()
	tx, s, err := b.store.Begin(beginCtx, o)
	if err != nil {
		return tx, nil, nil, a.beginFault(err)
	}
	if o.Claim == nil {
		held, res, err = b.claimIn(ctx, tx, req, a)
	} else if a.holds(s) {
		held = a.held(s)
	}
	if held != nil {
		return tx, held, nil, nil
	}
	endCtx, cancel := b.detached(ctx)
	defer cancel()
	_ = b.store.Rollback(endCtx, tx)
	if o.Claim != nil {
		judgeCtx, judged := b.bounded(ctx)
		defer judged()
		held, res, err = b.judge(judgeCtx, b.store.Own(), a, s)
	}
	return tx, held, res, err
}

// beginFault says of a transaction that could not be begun that it did nothing, unless the key's own state is the reason.
func (a *attempt) beginFault(err error) error {
	if unknown(err) {
		return a.undone(err)
	}
	return err
}

// committed finds out what became of a commit whose reply was lost: behind the barrier it has ended, and the claim is there
// exactly if it was committed.
func (b *Broker[TTx]) committed(ctx context.Context, a *attempt, res *contract.OperationResult, cause error) (
	*contract.OperationResult, error,
) {
	s, err := b.standing(ctx, a)
	switch {
	case err != nil: // it cannot be found out: say so
		res, err := ambiguous(a.Confirmation, nil)
		return firstRun(res), err
	case a.holds(s):
		return res, nil
	case s.Claim == nil:
		return nil, a.undone(cause)
	}
	return b.answer(a, s)
}
