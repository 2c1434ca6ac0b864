package broker

import (
	"context"
	"errors"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// ExecutePerItem carries out a confirmed operation with one transaction per item: the claim is committed on its own, then each
// item's effect and its outcome commit together, under the claim's fence. Every item happens exactly once or not at all, and
// which of the two can always be told by reading. It takes batches of any size; a crash leaves the items after it undone, and
// [Broker.Resolve] then settles the key without a reader.
//
// exec's context ends with the lease, which each item renews, and not with the caller's; it must return when it ends. A
// transaction that meets a serialization failure or a deadlock is run again, a few times; an item that meets one each time is failed,
// since it is known that nothing of it is there: to leave it open would make ambiguous what is certain.
//
// Round trips: 3n+2, of which n are the executor's for one statement each; two more for an item that is not applied. Errors as
// for [Broker.Execute].
func (b *Broker[TTx]) ExecutePerItem(ctx context.Context, req Request, exec TxExecutor[TTx]) (res *contract.OperationResult, err error) {
	defer func(start time.Time) { b.observe(ctx, "execute_per_item", start, res, err) }(time.Now())
	a, err := b.newAttempt("execute_per_item", store.ModePerItem, req, exec == nil)
	if err != nil {
		return nil, err
	}
	deadline := b.leaseEnd()
	held, res, err := b.enter(ctx, a)
	if held == nil {
		return res, err
	}
	res = &contract.OperationResult{IdempotencyKey: held.Key}
	for i, it := range a.Confirmation.Items {
		if !time.Now().Before(deadline) { // the items before it have used the lease up
			res.Outcomes = append(res.Outcomes, notStarted(it.ID))
			continue
		}
		renewed := b.leaseEnd()
		out, err := b.commitItem(ctx, a, *held, i, deadline, exec)
		switch {
		case err == nil:
			deadline = renewed
		case errors.Is(err, errNotBegun), b.leaseRanOut(ctx, a, err):
			deadline = time.Time{}
		default:
			return b.unrecorded(ctx, a, *held, res.Outcomes, err)
		}
		res.Outcomes = append(res.Outcomes, out)
	}
	return b.finish(ctx, a, *held, res)
}

// commitItem runs item i in a transaction of its own until it is known how that ended, and recorded. The outcome counts also when
// only the record was refused because the lease had ended.
func (b *Broker[TTx]) commitItem(ctx context.Context, a *attempt, held store.Fenced, i int, deadline time.Time, exec TxExecutor[TTx]) (
	contract.OperationItemOutcome, error,
) {
	itemID := a.Confirmation.Items[i].ID
	var out contract.OperationItemOutcome
	for try := range maxTries {
		_ = backOff(context.WithoutCancel(ctx), try)
		var err error
		out, err = b.tryItem(ctx, a, held, a.item(i, held), deadline, exec)
		switch {
		case err == nil && out.State == contract.Applied:
			return out, nil // recorded with its commit
		case errors.Is(err, store.ErrRetryTx):
			out = transactional(itemID, describe(Outcome{}, contract.ErrRetryTx))
			continue
		case err != nil:
			return out, err
		}
		break
	}
	return out, b.progress(ctx, a, held, out, "")
}

// errNotBegun is an item's transaction that has waited in vain until the lease's end: nothing of it has happened.
var errNotBegun = errors.New("not begun")

// beginItem begins an item's transaction, and waits for whatever keeps it from beginning as long as the lease runs.
func (b *Broker[TTx]) beginItem(ctx context.Context, a *attempt, held store.Fenced, deadline time.Time) (tx TTx, err error) {
	for try := 1; ; try++ {
		beginCtx, cancel := b.detached(ctx)
		tx, _, err = b.store.Begin(beginCtx, store.Opening{ID: held.ID, Hold: &held, Guards: a.Guards})
		cancel()
		switch {
		case !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrLockTimeout):
			return tx, err
		case !time.Now().Before(deadline):
			return tx, errNotBegun
		}
		_ = backOff(context.WithoutCancel(ctx), try)
	}
}

// tryItem runs an item once. An applied outcome is committed together with its record; any other is rolled back, and not
// recorded yet.
func (b *Broker[TTx]) tryItem(ctx context.Context, a *attempt, held store.Fenced, it Item, deadline time.Time, exec TxExecutor[TTx]) (
	out contract.OperationItemOutcome, err error,
) {
	tx, err := b.beginItem(ctx, a, held, deadline)
	switch {
	case errors.Is(err, store.ErrGuard):
		return transactional(it.ID, describe(Outcome{}, contract.ErrGuardNotMet)), nil
	case errors.Is(err, errNotBegun):
		return notStarted(it.ID), err
	case err != nil:
		return out, err
	}
	execCtx, cancelExec := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancelExec()
	r := <-start(func() (Outcome, error) { return exec(execCtx, tx, it) })
	out = transactional(it.ID, r)
	endCtx, cancelEnd := b.detached(ctx)
	defer cancelEnd()
	if r.err != nil || out.State != contract.Applied {
		again := b.store.Retryable(tx, r.err)
		err := b.store.Rollback(endCtx, tx)
		switch {
		case errors.Is(err, store.ErrTxEnded):
			return endedEarly(it.ID), nil
		case again:
			return out, store.ErrRetryTx
		}
		return out, nil
	}
	err = b.store.Commit(endCtx, tx, store.Closing{Progress: &store.ProgressParams{
		Fenced: held, Done: it.ID, Outcome: contract.EncodeOutcomes([]contract.OperationItemOutcome{out}), Lease: b.cfg.Lease,
	}})
	if unknown(err) {
		return b.committedItem(ctx, a, it.ID, err)
	}
	if errors.Is(err, store.ErrTxEnded) {
		return endedEarly(it.ID), nil
	}
	if errors.Is(err, store.ErrNotCommitted) {
		return notCommitted(it.ID, err), nil
	}
	return out, err
}

// endedEarly is the outcome of an item whose executor ended the transaction: it may have committed what it had written.
func endedEarly(itemID string) contract.OperationItemOutcome {
	return contract.OperationItemOutcome{
		ItemID: itemID, State: contract.Ambiguous, Reason: contract.ReasonTxEnded, Detail: "the executor ended the transaction itself",
	}
}

// committedItem finds out what became of an item whose commit did not come back: behind the barrier that transaction has
// ended, and the item's record is there exactly if it was committed.
func (b *Broker[TTx]) committedItem(ctx context.Context, a *attempt, itemID string, cause error) (contract.OperationItemOutcome, error) {
	s, err := b.standing(ctx, a)
	switch {
	case err != nil:
		return contract.OperationItemOutcome{}, errors.Join(cause, err)
	case !a.holds(s) || s.Claim.Completed:
		return contract.OperationItemOutcome{}, store.ErrFenced
	case len(s.Claim.Items[itemID]) > 0:
		return recorded(s.Claim, itemID)
	}
	return notCommitted(itemID, cause), nil
}

// notCommitted is the outcome of an item whose transaction certainly was not committed.
func notCommitted(itemID string, cause error) contract.OperationItemOutcome {
	out := contract.OperationItemOutcome{
		ItemID: itemID, State: contract.Failed, Reason: contract.ReasonNotCommitted,
		Detail: "its transaction was rolled back: " + causeText(cause),
	}
	return out.Clean()
}

// causeText is what an outcome says of the error behind one of the store's.
func causeText(err error) string {
	if e, ok := errors.AsType[*store.Error](err); ok && e.Cause != nil {
		return textOf(e.Cause)
	}
	return textOf(err)
}
