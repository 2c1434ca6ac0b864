package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/confirmexec/confirmexec/store"
)

// A transaction that Begin made holds a savepoint to its end: without it, it is not the one that Begin made.
const (
	markBegun  = "SAVEPOINT confirmexec_begun"
	checkBegun = "RELEASE confirmexec_begun"
)

// Begin implements [store.Transactor]. ctx and the lock timeout bound the wait for the writer; the transaction outlives
// ctx. database/sql cannot keep an executor from ending it, but then it is undone, and Isolate and Commit notice it, with
// [store.ErrTxEnded].
func (s *Store) Begin(ctx context.Context, o store.Opening) (*sql.Tx, store.Standing, error) {
	const op = "sqlitestore: begin"
	if err := validOpening(o); err != nil {
		return nil, store.Standing{}, refused(op, err)
	}
	tx, err := s.begin(ctx, op)
	if err != nil {
		return nil, store.Standing{}, err
	}
	standing, err := open(context.WithoutCancel(ctx), tx, o)
	if err != nil {
		return nil, store.Standing{}, fault(op, undo(tx, err))
	}
	s.loan.give(tx)
	return tx, standing, nil
}

// begin begins a transaction that ctx ends only while it waits for the writer.
func (s *Store) begin(ctx context.Context, op string) (*sql.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault(op, err)
	}
	wait, done := context.WithTimeout(ctx, s.lockTimeout)
	defer done()
	detached, end := context.WithCancel(context.WithoutCancel(ctx))
	begun := context.AfterFunc(wait, end)
	tx, err := s.writer.BeginTx(detached, nil)
	if !begun() && err == nil { // wait may have ended just after it began
		err = undo(tx, wait.Err())
	}
	if err != nil {
		return nil, waitFault(wait, op, errors.Join(wait.Err(), err))
	}
	return tx, nil
}

// open makes the claim of o, or sees that the claim is held that o names. The only writer is the lock.
func open(ctx context.Context, q querier, o store.Opening) (s store.Standing, err error) {
	if err := meet(ctx, q, o.Tenant, o.Guards); err != nil {
		return s, err
	}
	if o.Claim != nil {
		s, err = claim(ctx, q, *o.Claim)
	}
	if err == nil && o.Hold != nil {
		err = hold(ctx, q, *o.Hold)
	}
	if err == nil {
		_, err = q.ExecContext(ctx, markBegun)
	}
	return s, err
}

func validOpening(o store.Opening) error {
	err := store.ValidateGuards(o.Guards)
	if err == nil && o.Claim != nil {
		err = store.ValidateGuards(o.Claim.Guards)
	}
	return err
}

func hold(ctx context.Context, q querier, f store.Fenced) error {
	rows, err := q.QueryContext(ctx, selectHeld, fencedArgs(f)...)
	if err != nil {
		return err
	}
	var fence int64
	if err := scanOne(rows, &fence); !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return store.ErrFenced
}

// undo rolls tx back after err, which it returns.
func undo(tx *sql.Tx, err error) error {
	if rollback := tx.Rollback(); rollback != nil && !errors.Is(rollback, sql.ErrTxDone) {
		return errors.Join(err, rollback)
	}
	return err
}

// Commit implements [store.Transactor]. No context interrupts it.
func (s *Store) Commit(ctx context.Context, tx *sql.Tx, c store.Closing) error {
	const op = "sqlitestore: commit"
	err := write(context.WithoutCancel(ctx), tx, c)
	s.loan.back(tx)
	if errors.Is(err, store.ErrTxEnded) || errors.Is(err, sql.ErrTxDone) {
		_ = tx.Rollback() // gives the connection back
		return &store.Error{Op: op, Kind: store.ErrTxEnded, Cause: err}
	}
	if err != nil {
		return notCommitted(op, err, tx.Rollback())
	}
	err = commitFault(op, tx.Commit())
	if err != nil {
		s.doubt.Store(true)
	}
	return err
}

// write writes c in the transaction that Begin made.
func write(ctx context.Context, tx *sql.Tx, c store.Closing) error {
	if _, err := tx.ExecContext(ctx, checkBegun); isPlainError(err) {
		return fmt.Errorf("%w: %w", store.ErrTxEnded, err)
	} else if err != nil {
		return err
	}
	var err error
	if c.Progress != nil {
		err = commitItem(ctx, tx, *c.Progress)
	}
	if err == nil && c.Complete != nil {
		err = complete(ctx, tx, *c.Complete)
	}
	return err
}

// commitItem is progress with the commit of an item's transaction, which keeps the claim: the item is recorded though
// the lease may have ended meanwhile, but then nothing is renewed or started.
func commitItem(ctx context.Context, q querier, p store.ProgressParams) error {
	err := progress(ctx, q, p)
	if !errors.Is(err, store.ErrFenced) {
		return err
	}
	if err := hold(ctx, q, p.Fenced); err != nil {
		return err
	}
	return finish(ctx, q, p)
}

// notCommitted is the error of a transaction that was rolled back after err, by rollback or, as SQLite does after some
// errors, before it.
func notCommitted(op string, err, rollback error) error {
	e := &store.Error{Op: op, Kind: store.ErrNotCommitted, Code: code(err), Cause: err}
	switch {
	case rollback != nil && !isPlainError(rollback):
		e.Kind, e.Cause = nil, errors.Join(err, rollback)
	case mustRetry(err):
		e.Kind = store.ErrRetryTx
	}
	return e
}

// commitFault makes the error of a COMMIT, which may be nil, one that says no more than is known. SQLite keeps a
// transaction open whose COMMIT was refused, and the driver then rolls it back. After any other error the commit may
// stand in the log, to be found when the file is next recovered.
func commitFault(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &store.Error{Op: op, Code: code(err), Cause: err}
	switch primary(result(err)) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CONSTRAINT:
		e.Kind = store.ErrNotCommitted
	case sqlite3.SQLITE_ERROR:
		e.Kind = store.ErrTxEnded
	}
	if errors.Is(err, sql.ErrTxDone) {
		e.Kind = store.ErrTxEnded
	}
	return e
}

// Rollback implements [store.Transactor]. It is nil also when an executor had ended the transaction: that has undone it.
func (s *Store) Rollback(_ context.Context, tx *sql.Tx) error {
	const op = "sqlitestore: rollback"
	undone := s.loan.back(tx)
	err := tx.Rollback()
	ended := isPlainError(err) || errors.Is(err, sql.ErrTxDone)
	switch {
	case ended && undone:
		return nil
	case ended:
		return &store.Error{Op: op, Kind: store.ErrTxEnded, Code: code(err), Cause: err}
	}
	return fault(op, err)
}

// Retryable implements [store.Transactor]: SQLite has no deadlocks, but a snapshot may be too old to write.
func (s *Store) Retryable(_ *sql.Tx, err error) bool { return mustRetry(err) }
