package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// MaxTxItems is how many items one transaction takes: PostgreSQL caches the state of 64 subtransactions per connection, and
// every snapshot on the server gets slower beyond. The claim and the completion are one each.
const MaxTxItems = 62

// TxExecutor carries out one item inside the transaction, through tx. Whatever it returns but an applied outcome with a nil
// error undoes what the item wrote: an error makes the item failed, and so does a swallowed SQL error that left the
// transaction aborted, a panic, and an outcome that says nothing. None of them sinks the other items; but a serialization
// failure or a deadlock is the whole transaction's.
//
// It must not end the transaction. PostgreSQL's handle refuses Commit and Rollback, and SQLite every commit while it runs;
// what was done otherwise is reported as [contract.ErrTxEnded]. The text of an error is kept as [Executor] says.
type TxExecutor[TTx any] func(ctx context.Context, tx TTx, it Item) (Outcome, error)

// ExecuteTx carries out a confirmed operation in the caller's transaction: claim, effects (one savepoint per item), outcomes
// and completion. If the caller commits, all of that stands, exactly once per key; if not, none of it, and the key can be confirmed
// again.
//
// A failed item is undone alone: the others, and the claim, stay. Where all items are wanted or none, roll back when the result's Err
// is not nil.
//
// The result is provisional until the caller's commit has succeeded: do not show it before. After a commit whose end is not
// known, Lookup tells. After contract.ErrRetryTx roll back and run the transaction again; after every refusal (see
// [Broker.Execute]; also contract.ErrTenantMismatch) the transaction is still usable, and after any other error it must be
// rolled back. The tenant is bound in the transaction if it is unbound (S28a). At most [MaxTxItems] items.
//
// Round trips beside the caller's own: 2n+3; replay 1, stale 1; three more, and its own, with ReadSurface.
func (b *Broker[TTx]) ExecuteTx(ctx context.Context, tx TTx, req TxRequest[TTx], exec TxExecutor[TTx]) (
	res *contract.OperationResult, err error,
) {
	defer func(start time.Time) { b.observe(ctx, "execute_tx", start, res, err) }(time.Now())
	if err := fitsTransaction(req.Request); err != nil {
		return nil, err
	}
	a, err := b.newAttempt("execute_tx", store.ModeAtomic, req.Request, exec == nil)
	if err != nil {
		return nil, err
	}
	claims := b.store.In(tx)
	if err := b.admit(ctx, claims, a); err != nil {
		return nil, fromStore(err)
	}
	held, res, err := b.claimIn(ctx, tx, req, a)
	if held == nil {
		return res, fromStore(err)
	}
	outcomes, err := b.runTx(ctx, tx, a, *held, exec)
	if err != nil {
		return nil, fromStore(err)
	}
	if err := claims.Complete(ctx, completion(*held, outcomes)); err != nil {
		return nil, unfinished(err)
	}
	return &contract.OperationResult{IdempotencyKey: held.Key, Outcomes: outcomes}, nil
}

// unfinished is the failure of a transaction in which items have run: it is not usable any more, whatever the reason.
func unfinished(err error) error {
	if errors.Is(err, store.ErrRetryTx) || errors.Is(err, store.ErrTxEnded) {
		return fromStore(err)
	}
	f := contract.ErrUnavailable.With(err)
	f.Message = "the operation could not be completed in its transaction; roll the transaction back"
	return f
}

// claimIn claims inside tx, with the surface read there if the request says so.
func (b *Broker[TTx]) claimIn(ctx context.Context, tx TTx, req TxRequest[TTx], a *attempt) (
	*store.Fenced, *contract.OperationResult, error,
) {
	if req.ReadSurface != nil {
		if res, err := b.readSurface(ctx, tx, req, a); res != nil || err != nil {
			return nil, res, err
		}
	}
	return b.claim(ctx, b.store.In(tx), a)
}

func fitsTransaction(req Request) error {
	if n := len(req.Confirmation.Items); n > MaxTxItems {
		return &contract.InvalidError{Path: "/items", Problem: fmt.Sprintf(
			"holds %d items, a transaction takes at most %d; use ExecutePerItem, which takes any number", n, MaxTxItems)}
	}
	return nil
}

// readSurface answers a key that is claimed already; for one that is not it reads the surface into a.Current.
func (b *Broker[TTx]) readSurface(ctx context.Context, tx TTx, req TxRequest[TTx], a *attempt) (*contract.OperationResult, error) {
	s, err := b.store.In(tx).Lookup(ctx, store.LookupParams{ID: a.keyID(), Guards: a.Guards})
	if err != nil {
		return nil, err
	}
	if s.Claim != nil || a.conflicts(s) {
		res, err := b.answer(a, s)
		if err = b.outOfSight(ctx, a, s, err); err != nil {
			return nil, err
		}
		return res, nil
	}
	undone, err := b.store.Isolate(ctx, tx, 1, func(_ int, tx TTx) error { // which tells the transaction's own errors apart
		return guarded(func() (err error) { // a panic must not leave the transaction behind
			a.Current, err = req.ReadSurface(ctx, tx)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if err := undone[0]; err != nil {
		f := contract.ErrUnavailable.With(err) // nobody has looked whether an earlier confirm is under way
		f.Message = "the surface could not be read; this request did nothing; confirm again later"
		return nil, f
	}
	return nil, nil
}

// runTx runs the items, each in its savepoint. An item is applied only if the store has kept its writes.
func (b *Broker[TTx]) runTx(ctx context.Context, tx TTx, a *attempt, held store.Fenced, exec TxExecutor[TTx]) (
	[]contract.OperationItemOutcome, error,
) {
	outcomes := make([]contract.OperationItemOutcome, len(a.Confirmation.Items))
	undone, err := b.store.Isolate(ctx, tx, len(outcomes), func(i int, tx TTx) error {
		it := a.item(i, held)
		r := <-start(func() (Outcome, error) { return exec(ctx, tx, it) })
		outcomes[i] = transactional(it.ID, r)
		if r.err == nil && outcomes[i].State != contract.Applied {
			return errNothingToKeep
		}
		return r.err
	})
	if err != nil {
		return nil, err
	}
	for i, reason := range undone {
		if reason != nil && outcomes[i].State == contract.Applied {
			outcomes[i] = rolledBack(outcomes[i].ItemID, reason)
		}
	}
	return outcomes, nil
}

// errNothingToKeep undoes the savepoint of an item that has nothing to keep.
var errNothingToKeep = errors.New("nothing to keep")

// rolledBack is the outcome of an item whose executor said applied after swallowing the error that undid it.
func rolledBack(itemID string, reason error) contract.OperationItemOutcome {
	out := contract.OperationItemOutcome{
		ItemID: itemID, State: contract.Failed, Reason: contract.ReasonRolledBack,
		Detail: "the executor went on after an SQL error, which had undone its writes: " + textOf(reason),
	}
	return out.Clean()
}
