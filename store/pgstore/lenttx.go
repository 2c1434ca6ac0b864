package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/confirmexec/confirmexec/store"
)

// lentTx is the transaction that an executor sees. It cannot be ended, and it remembers the first SQL error, so that an
// executor that swallows one is told apart from one that succeeded, with the cause.
type lentTx struct {
	pgx.Tx
	seen *seen
}

// seen are the SQL errors that an executor met.
type seen struct {
	first error // the first one
	retry error // the first that is the whole transaction's: a serialization failure or a deadlock
}

var errLent = errors.New("pgstore: an executor must not end the transaction that it was lent; begin a nested one in it")

// Commit refuses.
func (t *lentTx) Commit(context.Context) error { return errLent }

// Rollback refuses.
func (t *lentTx) Rollback(context.Context) error { return errLent }

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
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, t.note(err)
	}
	return &nestedTx{lentTx{Tx: tx, seen: t.seen}}, nil
}

type nestedTx struct{ lentTx }

// Commit releases the nested transaction.
func (t *nestedTx) Commit(ctx context.Context) error { return t.note(t.Tx.Commit(ctx)) }

// Rollback undoes the nested transaction.
func (t *nestedTx) Rollback(ctx context.Context) error { return t.note(t.Tx.Rollback(ctx)) }

// Exec implements pgx.Tx.
func (t *lentTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := t.Tx.Exec(ctx, sql, args...)
	return tag, t.note(err)
}

// Query implements pgx.Tx.
func (t *lentTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := t.Tx.Query(ctx, sql, args...)
	if rows != nil {
		rows = &lentRows{Rows: rows, tx: t}
	}
	return rows, t.note(err)
}

// QueryRow implements pgx.Tx.
func (t *lentTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return lentRow{Row: t.Tx.QueryRow(ctx, sql, args...), tx: t}
}

// SendBatch implements pgx.Tx.
func (t *lentTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return &lentBatch{BatchResults: t.Tx.SendBatch(ctx, b), tx: t}
}

// CopyFrom implements pgx.Tx.
func (t *lentTx) CopyFrom(ctx context.Context, table pgx.Identifier, cols []string, src pgx.CopyFromSource) (int64, error) {
	n, err := t.Tx.CopyFrom(ctx, table, cols, src)
	return n, t.note(err)
}

type lentRow struct {
	pgx.Row
	tx *lentTx
}

func (r lentRow) Scan(dest ...any) error { return r.tx.note(r.Row.Scan(dest...)) }

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

func (b *lentBatch) QueryRow() pgx.Row { return lentRow{Row: b.BatchResults.QueryRow(), tx: b.tx} }

func (b *lentBatch) Close() error { return b.tx.note(b.BatchResults.Close()) }
