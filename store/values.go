package store

import (
	"context"
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
)

// Values are the versioned values of a tenant in a caller's transaction: named values with a revision, changed only by
// compare-and-set. Epochs, session generations, admission states, task revisions and token high-water marks are such values.
//
// Every error is an *Error, as in Claims, and after every one but a broken connection the transaction is still usable; for
// parameters that are not valid its Kind is a *contract.InvalidError. Under REPEATABLE READ and SERIALIZABLE whatever the
// transaction's snapshot is too old to tell is ErrRetryTx.
//
// A value is never deleted: one that was forgotten would begin again at 1, and let in what its revisions had fenced off. It is
// not for payloads: the content has at most MaxValue bytes.
type Values interface {
	// Load tells a value as the transaction sees it, without a lock: nothing may be written because of it but by Swap.
	Load(ctx context.Context, id ValueID) (Value, error)

	// Hold tells a value and keeps it as it is until the transaction ends; whatever changes it is waited for, and waits. Any number
	// of transactions may hold a value at once. One that does not exist cannot be held: its revision is 0, and it may be made by
	// somebody else at any time. A store with one writer holds by being that writer: nobody else holds or writes anything then.
	Hold(ctx context.Context, id ValueID) (Value, error)

	// Swap sets a value, whose revision is p.Revision, to p.Content, and returns it with the next revision; revision 0 makes a
	// value that does not exist. With ErrRevision it returns the value that stands instead. It waits for whoever holds or changes
	// the value: ErrLockTimeout when that takes too long, ErrRetryTx when two that hold it both want to change it.
	Swap(ctx context.Context, p SwapParams) (Value, error)
}

// ValueID names a value.
type ValueID struct {
	Tenant string
	Name   string // one line of at most MaxValueName bytes
}

// Validate tells whether id can name a value. The error is a *contract.InvalidError.
func (id ValueID) Validate() error {
	if err := contract.ValidateTenant(id.Tenant); err != nil {
		return err
	}
	return contract.ValidateText("/name", id.Name, MaxValueName)
}

// Value is a versioned value. The zero Value is of one that does not exist.
type Value struct {
	Revision int64 // 1 for the first, one more for each change; never reused
	Content  []byte
}

// SwapParams are the arguments of Values.Swap.
type SwapParams struct {
	ValueID
	Revision int64
	Content  []byte // not nil, at most MaxValue bytes
}

// Validate tells whether p can be carried out. The error is a *contract.InvalidError.
func (p SwapParams) Validate() error {
	if err := p.ValueID.Validate(); err != nil {
		return err
	}
	switch {
	case p.Revision < 0:
		return &contract.InvalidError{Path: "/revision", Problem: "must not be negative; 0 makes a value that does not exist"}
	case p.Content == nil:
		return &contract.InvalidError{Path: "/content", Problem: "must not be nil; it may be empty"}
	case len(p.Content) > MaxValue:
		return &contract.InvalidError{Path: "/content", Problem: fmt.Sprintf("is %d bytes long, the limit is %d", len(p.Content), MaxValue)}
	}
	return nil
}

// Guard is a value of the key's tenant that must have a revision. A revision of 0 is an error, never "any".
type Guard struct {
	Name     string // as in ValueID
	Revision int64  // at least 1
}

// ValidateGuards tells whether guards can be checked. The error is a *contract.InvalidError.
func ValidateGuards(guards []Guard) error {
	if len(guards) > MaxGuards {
		return &contract.InvalidError{Path: "/guards", Problem: fmt.Sprintf("are %d, the limit is %d", len(guards), MaxGuards)}
	}
	named := make(map[string]bool, len(guards))
	for i, g := range guards {
		path := fmt.Sprintf("/guards/%d", i)
		if err := contract.ValidateText(path+"/name", g.Name, MaxValueName); err != nil {
			return err
		}
		switch {
		case g.Revision < 1:
			return &contract.InvalidError{Path: path + "/revision", Problem: "must be at least 1: a value that does not exist guards nothing"}
		case named[g.Name]:
			return &contract.InvalidError{Path: path + "/name", Problem: "is named twice"}
		}
		named[g.Name] = true
	}
	return nil
}

// The limits of values: two in bytes, and how many guards there may be at once.
const (
	MaxValueName = 512
	MaxValue     = 64 << 10
	MaxGuards    = 16
)
