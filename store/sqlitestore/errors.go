package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/confirmexec/confirmexec/store"
)

// fault makes err, which may be nil, a *store.Error of op.
func fault(op string, err error) error {
	if err == nil {
		return nil
	}
	if se, ok := errors.AsType[*store.Error](err); ok {
		return se
	}
	return &store.Error{Op: op, Kind: kind(err), Code: code(err), Cause: err}
}

// waitFault is fault for a call that has done nothing but wait: its end by wait is a lock timeout.
func waitFault(wait context.Context, op string, err error) error {
	if wait.Err() != nil {
		return &store.Error{Op: op, Kind: store.ErrBusy, Code: code(err), Cause: err}
	}
	return fault(op, err)
}

// broken is the error of a transaction in which a savepoint could not be made or ended, undone the error of its item.
// It is never a lock timeout. SQLite says no more than SQLITE_ERROR of a savepoint that is gone with its transaction,
// and SQLITE_BUSY of one that open rows are in the way of; database/sql itself ends a transaction whose context is
// done.
func broken(ctx context.Context, op string, err, undone error) error {
	e := &store.Error{Op: op, Code: code(err), Cause: errors.Join(err, undone)}
	done := errors.Is(err, sql.ErrTxDone)
	switch {
	case done && ctx.Err() != nil:
		e.Cause = errors.Join(ctx.Err(), e.Cause)
	case done, isPlainError(err), errors.Is(err, store.ErrTxEnded):
		e.Kind = store.ErrTxEnded
	}
	return e
}

// kind finds the sentinel that err stands for. Nil: none.
func kind(err error) error {
	for _, k := range []error{store.ErrFenced, store.ErrDuplicate, store.ErrRetryTx, store.ErrTxEnded,
		store.ErrRevision, store.ErrGuard} {
		if errors.Is(err, k) {
			return k
		}
	}
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return store.ErrTxEnded
	case mustRetry(err):
		return store.ErrRetryTx
	case isBusy(err):
		return store.ErrBusy
	}
	return nil
}

// result is SQLite's extended result code of err, or SQLITE_OK if it has none.
func result(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return sqlite3.SQLITE_OK
	}
	return e.Code()
}

// primary is the part of an extended result code that has a name.
func primary(code int) int { return code & 0xff }

// isBusy tells whether another connection holds what err's statement wanted.
func isBusy(err error) bool { return primary(result(err)) == sqlite3.SQLITE_BUSY }

// mustRetry tells whether err's transaction reads a snapshot that is no longer the newest, so that it can never write.
func mustRetry(err error) bool {
	return errors.Is(err, store.ErrRetryTx) || result(err) == sqlite3.SQLITE_BUSY_SNAPSHOT
}

// isPlainError tells whether err is SQLITE_ERROR, as for a BEGIN within a transaction or a savepoint that is gone.
func isPlainError(err error) bool { return result(err) == sqlite3.SQLITE_ERROR }

var names = map[int]string{
	sqlite3.SQLITE_ERROR:      "SQLITE_ERROR",
	sqlite3.SQLITE_INTERNAL:   "SQLITE_INTERNAL",
	sqlite3.SQLITE_PERM:       "SQLITE_PERM",
	sqlite3.SQLITE_ABORT:      "SQLITE_ABORT",
	sqlite3.SQLITE_BUSY:       "SQLITE_BUSY",
	sqlite3.SQLITE_LOCKED:     "SQLITE_LOCKED",
	sqlite3.SQLITE_NOMEM:      "SQLITE_NOMEM",
	sqlite3.SQLITE_READONLY:   "SQLITE_READONLY",
	sqlite3.SQLITE_INTERRUPT:  "SQLITE_INTERRUPT",
	sqlite3.SQLITE_IOERR:      "SQLITE_IOERR",
	sqlite3.SQLITE_CORRUPT:    "SQLITE_CORRUPT",
	sqlite3.SQLITE_FULL:       "SQLITE_FULL",
	sqlite3.SQLITE_CANTOPEN:   "SQLITE_CANTOPEN",
	sqlite3.SQLITE_PROTOCOL:   "SQLITE_PROTOCOL",
	sqlite3.SQLITE_SCHEMA:     "SQLITE_SCHEMA",
	sqlite3.SQLITE_TOOBIG:     "SQLITE_TOOBIG",
	sqlite3.SQLITE_CONSTRAINT: "SQLITE_CONSTRAINT",
	sqlite3.SQLITE_MISMATCH:   "SQLITE_MISMATCH",
	sqlite3.SQLITE_MISUSE:     "SQLITE_MISUSE",
	sqlite3.SQLITE_AUTH:       "SQLITE_AUTH",
	sqlite3.SQLITE_NOTADB:     "SQLITE_NOTADB",
}

// code is SQLite's result code of err as text, with the extended code's number if it has one. Empty: none.
func code(err error) string {
	full := result(err)
	if full == sqlite3.SQLITE_OK {
		return ""
	}
	name, known := names[primary(full)]
	switch {
	case !known:
		return fmt.Sprint(full)
	case full == primary(full):
		return name
	}
	return fmt.Sprintf("%s %d", name, full)
}
