package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/confirmexec/confirmexec/store"
)

// The savepoint of the items. pgx's own nested transactions close themselves when RELEASE fails, after which nothing can
// roll back to them; so the store speaks SQL. Without arguments pgx uses the simple protocol: one trip, nothing to prepare,
// and so nothing that could fail before the savepoint stands.
const (
	openSavepoint  = "SAVEPOINT confirmexec_item"
	closeSavepoint = "RELEASE SAVEPOINT confirmexec_item"
	undoSavepoint  = "ROLLBACK TO SAVEPOINT confirmexec_item"
)

// Isolate implements [store.Store] with one savepoint per item; two trips per item beside the executor's own. The
// transaction that fn gets refuses Commit and Rollback; an executor that wants to nest begins a transaction in it.
func (s *Store) Isolate(ctx context.Context, tx pgx.Tx, n int, fn func(i int, tx pgx.Tx) error) ([]error, error) {
	undone := make([]error, n)
	if n == 0 {
		return undone, nil
	}
	if _, err := tx.Exec(ctx, openSavepoint); err != nil {
		return nil, fault("isolate items", err)
	}
	for i := range n {
		reason, err := isolateOne(ctx, tx, i, i == n-1, fn)
		if err != nil {
			return nil, fault("isolate items", err)
		}
		undone[i] = reason
	}
	return undone, nil
}

// isolateOne runs item i inside the standing savepoint and leaves a fresh one, or none after the last. reason says why the
// item's writes were undone; err is the transaction's.
func isolateOne(ctx context.Context, tx pgx.Tx, i int, last bool, fn func(int, pgx.Tx) error) (reason, err error) {
	lent := &lentTx{Tx: tx, seen: &seen{}}
	reason = fn(i, lent)
	lent.takeBack()
	if ended(tx) { // by a COMMIT or ROLLBACK in the executor's own SQL: whatever it met, nothing is left to undo or to run again
		return nil, store.ErrTxEnded
	}
	if reason != nil && lent.seen.retry != nil { // whatever the executor made of it
		return nil, lent.seen.retry
	}
	if kind := kindOf(reason); kind == store.ErrRetryTx { //nolint:errorlint // kindOf returns the sentinel itself
		return nil, reason
	}
	if reason == nil {
		next := closeSavepoint + "; " + openSavepoint
		if last {
			next = closeSavepoint
		}
		_, err = tx.Exec(ctx, next)
		if err == nil {
			return nil, nil
		}
		switch {
		case lent.seen.retry != nil:
			return nil, lent.seen.retry
		case kindOf(err) == store.ErrTxEnded, kindOf(err) == store.ErrRetryTx: //nolint:errorlint // they are the sentinels themselves
			return nil, err
		}
		if reason = lent.seen.first; reason == nil { // swallowed out of our sight: the aborted transaction is all that shows
			reason = err
		}
	}
	undo := undoSavepoint
	if last {
		undo += "; " + closeSavepoint
	}
	undoCtx, cancel := undoing(ctx)
	defer cancel()
	if _, err = tx.Exec(undoCtx, undo); err == nil {
		err = ctx.Err() // then no item after this one can do anything
	}
	return reason, err
}

// ended says whether the connection of tx stands, or stood at its end, outside a transaction. A caller's own kind of transaction may not
// tell.
func ended(tx pgx.Tx) bool {
	conn := tx.Conn()
	return conn != nil && conn.PgConn().TxStatus() == 'I'
}
