package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/confirmexec/confirmexec/store"
)

const opIsolate = "sqlitestore: isolate"

// Isolate implements [store.Store]. fn gets tx itself: database/sql has no nested transactions. While it runs nothing commits: an
// executor that ends tx undoes it, also one that its caller began, and that is [store.ErrTxEnded]. An SQL error that fn swallows
// undoes no more than its statement: unlike PostgreSQL, SQLite's transaction goes on, and so does the item. An executor must close
// the rows of its RETURNING: SQLite makes no savepoint while they are open, and then the transaction is broken.
func (s *Store) Isolate(
	ctx context.Context, tx *sql.Tx, n int, fn func(i int, tx *sql.Tx) error,
) (undone []error, err error) {
	undone = make([]error, n)
	if err := (callerTx{tx}).begun(context.WithoutCancel(ctx)); err != nil {
		return nil, broken(ctx, opIsolate, err, nil)
	}
	for i := range n {
		undone[i], err = item(ctx, tx, func() error {
			defer s.loan.during(tx)()
			return fn(i, tx)
		})
		if err != nil {
			return nil, err
		}
	}
	return undone, nil
}

// item runs call in a savepoint. undone is call's error, err the transaction's.
func item(ctx context.Context, tx *sql.Tx, call func() error) (undone, err error) {
	exec := func(query string) error {
		_, err := tx.ExecContext(context.WithoutCancel(ctx), query)
		return err
	}
	if err := exec("SAVEPOINT confirmexec_item"); err != nil {
		return nil, broken(ctx, opIsolate, err, nil)
	}
	undone = call()
	if mustRetry(undone) {
		return nil, &store.Error{Op: opIsolate, Kind: store.ErrRetryTx, Code: code(undone), Cause: undone}
	}
	if undone != nil {
		if err := exec("ROLLBACK TO confirmexec_item"); err != nil {
			return nil, broken(ctx, opIsolate, err, undone)
		}
	}
	if err := exec("RELEASE confirmexec_item"); err != nil {
		return nil, broken(ctx, opIsolate, err, undone)
	}
	return undone, nil
}
