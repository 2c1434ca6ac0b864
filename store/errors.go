package store

import (
	"errors"
	"strings"
)

// The kinds of error that a store tells apart. Match them with errors.Is.
var (
	// ErrFenced means that the claim is completed, or another attempt holds it. Nothing was written.
	ErrFenced = errors.New("the fence has moved")
	// ErrDuplicate means that the key has a proposal already. Nothing was written.
	ErrDuplicate = errors.New("the key exists")
	// ErrRevision means that a value has another revision than the one that was expected. Nothing was written.
	ErrRevision = errors.New("the value has another revision")
	// ErrGuard means that a value has not the revision that a guard demands. Nothing was written, and nothing is told of the key.
	ErrGuard = errors.New("a guard is not met")
	// ErrLockTimeout means that another transaction holds the key or the value for longer than the store waits. Nothing was written.
	ErrLockTimeout = errors.New("another transaction holds the key")
	// ErrBusy means that something else than the key is taken for longer than the store waits: the database's one writer, by whatever,
	// a value that a guard names, or the table. Nothing was written, and nothing is known of the key.
	ErrBusy = errors.New("the database is busy")
	// ErrRetryTx means that the transaction met a serialization failure or a deadlock; its owner runs it again from its start.
	ErrRetryTx = errors.New("the transaction must be run again")
	// ErrNotCommitted means that the transaction was rolled back, and that this is known.
	ErrNotCommitted = errors.New("the transaction was rolled back")
	// ErrTenantMismatch means that the caller's transaction is bound to another tenant. It was not touched.
	ErrTenantMismatch = errors.New("the transaction is bound to another tenant")
	// ErrTxEnded means that the transaction was ended before the store was done with it, by an executor that it was lent to or by its
	// owner.
	ErrTxEnded = errors.New("the transaction has been ended")
)

// Error is every store's error. Its text holds the operation, the kind and the driver's code: never the driver's own text,
// which may quote keys, tenants or content (S22). That is only reached through Unwrap.
type Error struct {
	Op    string // what the store was doing, for example "pgstore: claim"
	Kind  error  // a sentinel of this package, or a *contract.InvalidError of Values and of guards; nil for any other fault
	Code  string // the driver's code, for example a SQLSTATE; may be empty
	Cause error  // the driver's error; may be nil
}

// Error tells the operation, the kind and the driver's code.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	b.WriteString(": ")
	if e.Kind != nil {
		b.WriteString(e.Kind.Error())
	} else {
		b.WriteString("the database could not be used")
	}
	if e.Code != "" {
		b.WriteString(" (" + e.Code + ")")
	}
	return b.String()
}

// Unwrap returns the kind and the cause, so that errors.Is finds the sentinel and errors.As the driver's error.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	return errs
}
