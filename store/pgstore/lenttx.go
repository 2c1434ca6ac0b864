package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lentTx is the transaction that an executor sees. It cannot be ended, and it remembers the first SQL error, so that an
// executor that swallows one is told apart from one that succeeded, with the cause.
type lentTx struct {
	pgx.Tx
	first error
}

var errLent = errors.New("pgstore: an executor must not end the transaction that it was lent; begin a nested one in it")

// Commit refuses.
func (t *lentTx) Commit(context.Context) error { return errLent }

// Rollback refuses.
func (t *lentTx) Rollback(context.Context) error { return errLent }

func (t *lentTx) note(err error) error {
	if t.first == nil && err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.first = err
	}
	return err
}

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
