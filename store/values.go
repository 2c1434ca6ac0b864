package store

import (
	"context"
	"errors"
)

// ErrRevision means that a value has another revision than the one that was expected. Nothing was written.
var ErrRevision = errors.New("the value has another revision")

// Values are the versioned values of a tenant in a caller's transaction: named values with a revision, changed only by
// compare-and-set. Epochs, session generations, admission states, task revisions and token high-water marks are such values.
//
// Every error is an *Error, as in Claims. A value is never deleted: one that was forgotten would begin again at 1, and let in
// what its revisions had fenced off. It is not for payloads: the content has at most MaxValue bytes.
type Values interface {
	// Load tells a value as the transaction sees it, without a lock: nothing may be written because of it.
	Load(ctx context.Context, id ValueID) (Value, error)

	// Hold tells a value and keeps it as it is until the transaction ends; whatever changes it is waited for, and waits. Any number
	// of transactions may hold a value at once. One that does not exist cannot be held: its revision is 0, and it may be made by
	// somebody else at any time.
	Hold(ctx context.Context, id ValueID) (Value, error)

	// Swap sets a value, whose revision is p.Revision, to p.Content, and returns it with the next revision; revision 0 makes a
	// value that does not exist. With ErrRevision it returns the value that stands instead. It waits for whoever holds or changes
	// the value: ErrLockTimeout when that takes too long, ErrRetryTx when two that hold it both want to change it.
	Swap(ctx context.Context, p SwapParams) (Value, error)
}

// ValueID names a value.
type ValueID struct {
	Tenant string
	Name   string // at most MaxValueName bytes
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
	Content  []byte // not nil
}

// Guard is a value that must have a revision for a claim to be made.
type Guard struct {
	Name     string
	Revision int64 // at least 1
}

// The limits of values, in bytes.
const (
	MaxValueName = 512
	MaxValue     = 64 << 10
)
