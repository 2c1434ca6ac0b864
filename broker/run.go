package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Item is what an executor gets: one confirmed item and what it may pass on to its target.
type Item struct {
	contract.Item
	Index        int       // position in the operation
	Tenant       string    // whose operation it is
	OperationKey uuid.UUID // the idempotency key of the operation, for the executor's own records

	// IdempotencyKey is the item's own, for the target: the same for every attempt at this item, different for every other
	// item, key and tenant. A target that honours it can refuse a late or second call.
	IdempotencyKey uuid.UUID
	// Fence is the fencing token of the attempt; it rises whenever the key is taken from an attempt. A target that keeps the
	// highest one it saw can refuse an attempt that lost its key.
	Fence int64
	// Attempt is the id of this attempt, for the executor's own records.
	Attempt uuid.UUID

	// Expected is the surface that the confirmation is for, for the executor's own compare-and-set on its version.
	Expected contract.CurrentSurfaceState
}

func (a *attempt) item(i int, held store.Fenced) Item {
	c := a.Confirmation
	item := c.Items[i]
	item.Params = bytes.Clone(item.Params) // an executor may change it, and be called again
	return Item{
		Item: item, Index: i, Tenant: a.Tenant,
		OperationKey: held.Key, IdempotencyKey: ItemKey(a.Tenant, held.Key, item.ID), Fence: held.Fence, Attempt: held.Attempt,
		Expected: contract.CurrentSurfaceState{SurfaceKey: c.SurfaceKey, ContractVersion: c.ContractVersion},
	}
}

// ItemKey is the idempotency key that an executor and a reader get for an item, as [Item.IdempotencyKey]: for whoever looks at the
// target by hand. It is derived from the operation's: a UUID of version 8 (RFC 9562) over the key, the tenant and the item id, of
// which the tenant's length is fixed by a prefix, so that no two of them run together.
func ItemKey(tenant string, key uuid.UUID, itemID string) uuid.UUID {
	data := binary.BigEndian.AppendUint64(nil, uint64(len(tenant)))
	data = append(append(data, tenant...), itemID...)
	return uuid.NewHash(sha256.New(), key, data, 8)
}

// returned is what became of a call on the caller's code.
type returned[T any] struct {
	value T
	err   error
	// What err says, read where a panic of its own methods does no harm.
	text   string
	reason contract.Reason
	none   bool // it is proof that nothing happened
}

// start calls fn in a goroutine of its own, so that neither a panic, its error's methods included, nor the end of its goroutine
// ends the broker's.
func start[T any](fn func() (T, error)) <-chan returned[T] {
	done := make(chan returned[T], 1)
	go func() {
		r := failed[T](contract.ReasonPanic, "the executor ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				r = failed[T](contract.ReasonPanic, fmt.Sprintf("the executor panicked: %v", p))
			}
			done <- r
		}()
		value, err := fn()
		r = describe(value, err)
	}()
	return done
}

// guarded calls fn as start does, for its error alone.
func guarded(fn func() error) error {
	r := <-start(func() (struct{}, error) { return struct{}{}, fn() })
	return r.err
}

// failed is the return of an executor that did not return by itself.
func failed[T any](reason contract.Reason, text string) returned[T] {
	return returned[T]{err: errors.New(text), text: text, reason: reason}
}

func describe[T any](value T, err error) returned[T] {
	if err == nil {
		return returned[T]{value: value}
	}
	_ = errors.Is(err, errProbe) // stores will ask it what it is
	return returned[T]{err: err, text: textOf(err), reason: reasonOf(err), none: knownNoEffect(err)}
}

// textOf is the text of an executor's error as it is stored. A database's own words quote values, so that of an SQL error its SQLSTATE
// is left; but of a constraint (class 23) they name it and nothing of the row.
func textOf(err error) string {
	text := err.Error()
	for _, sql := range sqlErrors(err) {
		state := sql.SQLState()
		switch words := sql.Error(); {
		case strings.HasPrefix(state, "23"):
		case words != "" && strings.Contains(text, words):
			text = strings.ReplaceAll(text, words, "SQLSTATE "+state)
		case !strings.Contains(text, "SQLSTATE "+state): // somebody else has put it into words
			return "SQLSTATE " + state
		}
	}
	return text
}

// sqlError is a driver's error of a database that speaks SQLSTATE.
type sqlError interface {
	error
	SQLState() string
}

// sqlErrors are those in err's tree.
func sqlErrors(err error) (all []sqlError) {
	if e, ok := err.(sqlError); ok { //nolint:errorlint // it walks the tree itself
		all = append(all, e)
	}
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() error }:
		all = append(all, sqlErrors(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			all = append(all, sqlErrors(err)...)
		}
	}
	return all
}

var errProbe = errors.New("probe")

// runUntil calls fn with a context that ends at the deadline and keeps the caller's values but not its end: once claimed, an
// operation is carried out though the client hangs up. An executor that does not return by then is left behind; late is called
// with what it returns after all.
func runUntil[T any](ctx context.Context, deadline time.Time, fn func(context.Context) (T, error), late func(returned[T])) returned[T] {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	done := start(func() (T, error) { return fn(ctx) })
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
	}
	select { // it may have returned because its context ended
	case r := <-done:
		return r
	case <-time.After(returnGrace):
		go func() { late(<-done) }()
		return failed[T](contract.ReasonTimeout, "the executor did not return within its lease")
	}
}

// returnGrace is how long an executor has to return after its context has ended.
const returnGrace = 100 * time.Millisecond
