package broker

import (
	"errors"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// fromStore is where the store's errors become the broker's, once. Errors that are the broker's already pass through.
func fromStore(err error) error {
	if err == nil {
		return nil
	}
	if f, ok := err.(*contract.Failure); ok { //nolint:errorlint // one that was made here already, whatever its cause
		return f
	}
	if errors.Is(err, store.ErrBusy) {
		f := contract.ErrUnavailable.With(err)
		f.Message = "the database is busy; " + idleMessage
		return f
	}
	if _, ok := errors.AsType[*store.Error](err); !ok {
		return err
	}
	for _, m := range []struct {
		kind error
		as   *contract.Failure
	}{
		{store.ErrFenced, contract.ErrFenced},
		{store.ErrGuard, contract.ErrGuardNotMet},
		{store.ErrLockTimeout, contract.ErrInProgress},
		{store.ErrRetryTx, contract.ErrRetryTx},
		{store.ErrTenantMismatch, contract.ErrTenantMismatch},
		{store.ErrTxEnded, contract.ErrTxEnded},
	} {
		if errors.Is(err, m.kind) {
			return m.as.With(err)
		}
	}
	return unavailable(err)
}

func unavailable(cause error) error { return contract.ErrUnavailable.With(cause) }

// unreadable is the refusal to guess about stored bytes that this version cannot read.
func unreadable(cause error) error {
	f := contract.ErrUnavailable.With(cause)
	f.Message = "what is stored under the key cannot be read by this version; nothing was done; read it with the version that wrote it"
	return f
}
