package pgstore

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/confirmexec/confirmexec/store"
)

// lentTx is the transaction that an executor sees. It cannot be ended, and it remembers the first SQL error, so that an
// executor that swallows one is told apart from one that succeeded, with the cause. It also remembers what the executor has not
// read to its end, which would be in the way of every further statement. Once it is taken back it is closed, also where the
// connection and its transaction go on: what an executor that kept it writes then would stand for nobody's item. Only what Conn and
// LargeObjects give is pgx's own.
type lentTx struct {
	pgx.Tx
	seen *seen
}

// seen is what an executor met, and whether it still may, in the transaction that it was lent and in those nested in it.
type seen struct {
	first error       // the first SQL error
	retry error       // the first that is the whole transaction's: a serialization failure or a deadlock
	open  func()      // closes the last results, and notes their error; nil: there were none
	over  atomic.Bool // taken back; an executor may have left a goroutine behind that asks
}

// takeBack closes the transaction to the executor, and the results that it left open. A connection has one at a time. To close them
// is to read them to their end, which may never come, and a batch's is the executor's code: neither is waited for without end, and a
// panic is one more error of the executor's.
func (t *lentTx) takeBack() {
	t.seen.over.Store(true)
	if t.seen.open == nil {
		return
	}
	giveUp := time.AfterFunc(undoTimeout, func() { _ = t.Conn().PgConn().Conn().SetDeadline(time.Now()) })
	defer giveUp.Stop()
	closed := make(chan error, 1)
	go func() {
		err := errLeftOpen
		defer func() {
			_ = recover()
			closed <- err
		}()
		t.seen.open()
		err = nil
	}()
	_ = t.note(<-closed)
	t.seen.open = nil
}

// closed is pgx's error for a transaction that is over, or nil.
func (s *seen) closed() error {
	if s.over.Load() {
		return pgx.ErrTxClosed
	}
	return nil
}

var errLeftOpen = errors.New("pgstore: the results that an executor left open could not be closed")

var errLent = errors.New("pgstore: an executor must not end the transaction that it was lent; begin a nested one in it")

// Commit refuses.
func (t *lentTx) Commit(context.Context) error { return cmp.Or(t.seen.closed(), errLent) }

// Rollback refuses.
func (t *lentTx) Rollback(context.Context) error { return cmp.Or(t.seen.closed(), errLent) }

func (t *lentTx) note(err error) error {
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if t.seen.first == nil {
		t.seen.first = err
	}
	if t.seen.retry == nil && kindOf(err) == store.ErrRetryTx { //nolint:errorlint // kindOf returns the sentinel itself
		t.seen.retry = err
	}
	return err
}

// Begin begins a transaction nested in the item's, whose errors are noted as well. The executor ends it as it likes.
func (t *lentTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.seen.closed(); err != nil {
		return nil, err
	}
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, t.note(err)
	}
	return &nestedTx{lentTx{Tx: tx, seen: t.seen}}, nil
}

type nestedTx struct{ lentTx }

// Commit releases the nested transaction.
func (t *nestedTx) Commit(ctx context.Context) error {
	if err := t.seen.closed(); err != nil {
		return err
	}
	return t.note(t.Tx.Commit(ctx))
}

// Rollback undoes the nested transaction.
func (t *nestedTx) Rollback(ctx context.Context) error {
	if err := t.seen.closed(); err != nil {
		return err
	}
	return t.note(t.Tx.Rollback(ctx))
}

// Exec implements pgx.Tx.
func (t *lentTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.seen.closed(); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.Tx.Exec(ctx, sql, args...)
	return tag, t.note(err)
}

// Query implements pgx.Tx.
func (t *lentTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.seen.closed(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query() // rows that are closed, and tell the error too
	}
	rows, err := t.Tx.Query(ctx, sql, args...)
	return t.lend(rows), t.note(err)
}

// QueryRow implements pgx.Tx.
func (t *lentTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...)
	return lentRow{rows: rows, err: err}
}

// SendBatch implements pgx.Tx.
func (t *lentTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.seen.closed(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	results := &lentBatch{BatchResults: t.Tx.SendBatch(ctx, b), tx: t}
	t.seen.open = func() { _ = results.Close() }
	return results
}

// Prepare implements pgx.Tx.
func (t *lentTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.seen.closed(); err != nil {
		return nil, err
	}
	sd, err := t.Tx.Prepare(ctx, name, sql)
	return sd, t.note(err)
}

// lend notes the errors of rows, which may be nil.
func (t *lentTx) lend(rows pgx.Rows) pgx.Rows {
	if rows == nil {
		return nil
	}
	lent := &lentRows{Rows: rows, tx: t}
	t.seen.open = lent.Close
	return lent
}

// CopyFrom implements pgx.Tx.
func (t *lentTx) CopyFrom(ctx context.Context, table pgx.Identifier, cols []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.seen.closed(); err != nil {
		return 0, err
	}
	n, err := t.Tx.CopyFrom(ctx, table, cols, src)
	return n, t.note(err)
}

// lentRow is the first row of rows that are read when it is scanned, and closed by takeBack if it never is.
type lentRow struct {
	rows pgx.Rows
	err  error
}

func (r lentRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	_, err := pgx.CollectOneRow(r.rows, func(row pgx.CollectableRow) (none struct{}, err error) { return none, row.Scan(dest...) })
	return err
}

type lentRows struct {
	pgx.Rows
	tx *lentTx
}

func (r *lentRows) Next() bool {
	ok := r.Rows.Next()
	if !ok {
		_ = r.tx.note(r.Err())
	}
	return ok
}

func (r *lentRows) Close() {
	r.Rows.Close()
	_ = r.tx.note(r.Err())
}

type lentBatch struct {
	pgx.BatchResults
	tx *lentTx
}

func (b *lentBatch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, b.tx.note(err)
}

func (b *lentBatch) Query() (pgx.Rows, error) {
	rows, err := b.BatchResults.Query()
	if rows != nil {
		rows = &lentRows{Rows: rows, tx: b.tx}
	}
	return rows, b.tx.note(err)
}

func (b *lentBatch) QueryRow() pgx.Row {
	rows, err := b.Query()
	return lentRow{rows: rows, err: err}
}

func (b *lentBatch) Close() error { return b.tx.note(b.BatchResults.Close()) }
