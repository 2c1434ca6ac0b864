package pgstore

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/confirmexec/confirmexec/store"
)

// The SQLSTATEs that mean something to the broker.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	noActiveTransaction  = "25P01"
	noSuchSavepoint      = "3B001"
	abortedTransaction   = "25P02"
	divisionByZero       = "22012" // of our own statements that are to fail: see inTimeSQL, guardSQL
)

// fault is where the store's errors are wrapped, once: it classifies the driver's error and keeps its text out of ours.
func fault(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &store.Error{Op: "pgstore: " + op, Kind: kindOf(err), Cause: err}
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		e.Code = pe.Code
	}
	if broken, ok := err.(*brokenTx); ok { //nolint:errorlint // made by the flight, and not wrapped
		e.Code, e.Cause = sqlState(broken.err), broken.err
	}
	if e.Kind == err { //nolint:errorlint // the sentinel itself: there is no driver's error behind it
		e.Cause = nil
	}
	return e
}

func kindOf(err error) error {
	if err == nil {
		return nil
	}
	for _, kind := range []error{store.ErrFenced, store.ErrDuplicate, store.ErrTenantMismatch, store.ErrRetryTx, store.ErrTxEnded,
		store.ErrNotCommitted, store.ErrRevision, store.ErrGuard, store.ErrBusy} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	if errors.Is(err, pgx.ErrTxClosed) {
		return store.ErrTxEnded
	}
	pe, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return nil
	}
	switch pe.Code {
	case serializationFailure, deadlockDetected:
		return store.ErrRetryTx
	case lockNotAvailable:
		return store.ErrLockTimeout
	case noActiveTransaction, noSuchSavepoint:
		return store.ErrTxEnded
	}
	return nil
}
