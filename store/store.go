// Package store holds the interfaces that a store implements, their parameter types and their sentinels. It has no
// behaviour: a store records and tells, the broker decides.
//
// The implementations are pgstore (PostgreSQL, for services), sqlitestore (one file, one host) and memstore (unit tests of
// executors). Everything durable is a claim: `(tenant, boundary, key)` is taken once, by one attempt, and completed once; or a
// versioned value, changed only by compare-and-set ([Values]).
package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
)

// Store is what the broker needs of a database. TTx is the driver's own transaction type, so that an executor writes with
// the same handle as the rest of its service.
//
// A Store is safe for concurrent use. The value that In returns is as safe as its transaction: usually not at all.
type Store[TTx any] interface {
	// Own returns the claims of the store's own connections: every call is one committed transaction of its own.
	Own() Claims

	// In returns the claims of the caller's transaction: every call rides in tx and nothing is committed. After every
	// error but a broken connection the transaction is still usable.
	In(tx TTx) Claims

	// Values returns the versioned values in the caller's transaction, as In does its claims; one of the store's own begins with
	// Begin and an Opening that holds the tenant alone.
	Values(tx TTx) Values

	// Keep returns what settles and keeps claims, on the store's own connections: every call is one committed transaction.
	Keep() Keeper

	Transactor[TTx]
}

// Transactor makes transactions for the broker, and shares one out among items.
type Transactor[TTx any] interface {
	// Begin begins a transaction that is bound to o's tenant, with o's first statement in the same round trip. The handle
	// can be ended by Commit and Rollback of this interface only. After an error there is no transaction.
	Begin(ctx context.Context, o Opening) (tx TTx, s Standing, err error)

	// Commit writes c and commits, in one round trip, a transaction that Begin made. Nil: it is committed. ErrRetryTx or
	// ErrNotCommitted: it is not, and never will be; also when c's fence has moved. ErrTxEnded: an executor had ended it, and what
	// became of what that wrote is not known. Any other error leaves open whether it is committed; only reading tells, behind
	// LookupParams.Barrier and AwaitWrites. In every case the transaction is over, and a COMMIT is never sent twice.
	//
	// Progress records the item with its effect under the fence alone; a lease that has ended is not renewed by it.
	Commit(ctx context.Context, tx TTx, c Closing) error

	// Rollback ends a transaction that Begin made. ErrTxEnded: an executor had ended it, and what became of what that wrote is
	// not known. After any other error, too, the transaction is never committed.
	Rollback(ctx context.Context, tx TTx) error

	// Retryable says whether an executor that returned err met a serialization failure or a deadlock in tx, which Begin made and
	// which has not ended: that is the whole transaction's, not the item's, whatever the executor made of it.
	Retryable(tx TTx, err error) bool

	// Isolate calls fn for 0..n-1 in order, each inside a savepoint that is kept when fn returns nil and undone otherwise.
	// The handle that fn gets must not end the transaction; stores refuse it where the driver lets them.
	//
	// undone has one entry per item: nil when its writes are kept, else why they were undone: fn's own error, or, for an fn
	// that swallowed an SQL error, the first one. The error return is the transaction's: ErrRetryTx (also when fn returned
	// or met a serialization failure or a deadlock), ErrTxEnded, or whatever broke it; undone is nil then and the owner must
	// roll back.
	Isolate(ctx context.Context, tx TTx, n int, fn func(i int, tx TTx) error) (undone []error, err error)
}

// Claims are the writes and reads of one key. Each is atomic and, on a store with a network, one round trip.
//
// Every error is an *Error. Its Kind is one of this package's sentinels, or nil for a fault of the database or the way to
// it, after which a write may or may not have happened.
type Claims interface {
	// Propose records a proposal: content, digest, expiry. ErrDuplicate when the key has one; whether it is claimed does not
	// matter.
	Propose(ctx context.Context, p ProposeParams) error

	// Claim takes the key if it is free, and tells how the key stands after that. The attempt won exactly when the standing
	// claim carries p.Attempt. A key whose proposal is missing (unless p.AcceptUnminted), has another digest or has expired
	// (unless p.Outcomes is set) is not claimed. A claim that is under way elsewhere is waited for: ErrLockTimeout when that
	// takes too long. ErrGuard, whatever the key's state, when p.Guards are not met.
	Claim(ctx context.Context, p ClaimParams) (Standing, error)

	// Lookup tells how the key stands and changes nothing.
	Lookup(ctx context.Context, p LookupParams) (Standing, error)

	// Progress stores the outcome of one item, marks the next as started and renews the lease: all or nothing, and only
	// under p's fence. What is recorded of an item is never overwritten: an outcome stays, and Next leaves it alone.
	// ErrFenced when the claim is completed, another attempt holds it, or its lease is over: a lease that has ended is never
	// renewed, so that nobody sees a key go back from unresolved to in progress.
	Progress(ctx context.Context, p ProgressParams) error

	// Complete stores the outcomes and ends the claim, only under p's fence, also after its lease. ErrFenced when the claim is
	// completed or another attempt holds it.
	Complete(ctx context.Context, p CompleteParams) error
}

// ID names a key: an idempotency key means nothing without its tenant.
type ID struct {
	Tenant string
	Key    uuid.UUID
}

// Fenced names a key as one attempt holds it. A write under it changes nothing once the fence has moved.
type Fenced struct {
	ID
	Attempt uuid.UUID
	Fence   int64
}

// ProposeParams are the arguments of Claims.Propose.
type ProposeParams struct {
	ID
	Digest  contract.Digest
	Content []byte        // the proposal in its wire form
	Expiry  time.Duration // from now, on the database's clock
}

// ClaimParams are the arguments of Claims.Claim.
type ClaimParams struct {
	ID
	Digest  contract.Digest
	Attempt uuid.UUID
	Mode    Mode
	Lease   time.Duration // from now, on the database's clock

	// AcceptUnminted also takes a key without a proposal; Content is then stored with the claim.
	AcceptUnminted bool
	Content        []byte

	// FirstItem is recorded as started, in the same transaction. Empty: none.
	FirstItem string

	// Outcomes, if not nil, completes the claim as it is made, also after the proposal's expiry (Cancel).
	Outcomes []byte

	// Guards are the values that must have these revisions, and are held until the transaction of the claim ends: whatever
	// changes one comes wholly before the claim, which is then refused, or wholly after it.
	Guards []Guard
}

// LookupParams are the arguments of Claims.Lookup.
type LookupParams struct {
	ID

	// Barrier waits for a claim of the key that is under way before it reads, so that "no claim" is still true once it is
	// told. ErrLockTimeout when that takes too long.
	Barrier bool

	// AwaitWrites, with Barrier, also waits for a write under the standing claim that is under way: a completion, a
	// progress, an item's transaction. What is not seen then was not written, and what is seen is as durable as a commit that
	// is acknowledged, which it may not have been. ErrLockTimeout when that takes too long.
	AwaitWrites bool

	// Content asks for the content of the proposal or of the claim too.
	Content bool

	// Guards must be met for the key to be told, as for a claim: ErrGuard otherwise.
	Guards []Guard
}

// ProgressParams are the arguments of Claims.Progress.
type ProgressParams struct {
	Fenced
	Done    string // the item whose outcome is stored; required
	Outcome []byte // not nil
	Next    string // the item that is marked as started; empty: none
	Lease   time.Duration
}

// CompleteParams are the arguments of Claims.Complete.
type CompleteParams struct {
	Fenced
	Outcomes  []byte // not nil
	Unsettled bool   // an outcome is ambiguous: Keeper.Settle may still replace them
}

// Opening is how Transactor.Begin begins.
type Opening struct {
	ID
	// Claim, if set, is made, as by Claims.Claim; Begin then tells how the key stands.
	Claim *ClaimParams
	// Hold, if set, locks the standing claim under its fence until the transaction ends, so that it can be neither seized nor
	// completed meanwhile. ErrFenced when it is not held any more.
	Hold *Fenced
	// Guards must be met, and are held until the transaction ends: ErrGuard before anything else. Those of Claim count as well.
	Guards []Guard
}

// Closing is what Transactor.Commit writes with the commit. At most one is set.
type Closing struct {
	Progress *ProgressParams
	Complete *CompleteParams
}

// Keeper is what settles claims that nobody completed, and what keeps the table: for an operator's calls, not for confirms.
// Errors are as in Claims.
type Keeper interface {
	// Seize takes an uncompleted claim whose lease is over: it raises the fence, so that whatever the attempt before may still
	// write changes nothing, and gives the claim to p.Attempt. It tells how the key stands after that; it was taken exactly
	// when the standing claim carries p.Attempt.
	Seize(ctx context.Context, p SeizeParams) (Standing, error)

	// Settle replaces the outcomes of a completed claim that is unsettled, once under p's fence, which it raises. ErrFenced
	// when the claim is not unsettled or the fence has moved.
	Settle(ctx context.Context, p CompleteParams) error

	// Observe records what an attempt that had lost its key says of an item, beside what the key says. The first observation
	// of an attempt and item stays.
	Observe(ctx context.Context, p ObserveParams) error

	// List tells up to p.Limit operations of a tenant that need somebody: not completed with their lease over, unsettled, or
	// observed; in the order of their keys.
	List(ctx context.Context, p ListParams) ([]Open, error)

	// Purge forgets the payloads of up to p.Limit keys whose operations have been settled, or whose proposals have been
	// expired, for longer than p.Retention: content, outcomes and the items' records. Those of ModeIdentity hold names alone, which
	// lead to an operation that may be open still: they stay. Key, digest and completion stay, for
	// ever: no purge re-opens a key.
	Purge(ctx context.Context, p PurgeParams) (purged int, err error)
}

// SeizeParams are the arguments of Keeper.Seize.
type SeizeParams struct {
	ID
	Attempt uuid.UUID
	Lease   time.Duration // from now, on the database's clock
}

// ObserveParams are the arguments of Keeper.Observe.
type ObserveParams struct {
	Fenced  // as the attempt held the key
	Item    string
	Outcome []byte
}

// ListParams are the arguments of Keeper.List.
type ListParams struct {
	Tenant string
	After  uuid.UUID // the last key of the page before; the nil UUID: from the start
	Limit  int
}

// Open is an operation that needs somebody.
type Open struct {
	Key       uuid.UUID
	Mode      Mode
	Age       time.Duration // since the claim, on the database's clock
	Completed bool          // with an outcome that is ambiguous or has been contradicted
	Observed  bool          // an attempt that had lost the key has said something of an item
}

// PurgeParams are the arguments of Keeper.Purge.
type PurgeParams struct {
	Tenant    string
	Retention time.Duration
	Limit     int
}

// Mode says what an item without a record means. It is stored with the claim.
type Mode string

const (
	// ModeExternal means that items leave no record of their own; nothing is known of any until the claim is completed.
	ModeExternal Mode = "external"
	// ModeExternalProgress means that an item is recorded as started before its executor runs; one without a record has not started.
	ModeExternalProgress Mode = "external_progress"
	// ModePerItem means that an item's effect and its record commit together; one without a record has not been applied, and
	// under a raised fence never will be.
	ModePerItem Mode = "per_item"
	// ModeAtomic means that claim, effects and outcomes commit together: an uncompleted claim is never visible.
	ModeAtomic Mode = "atomic"
	// ModeCancel means that nothing ran and nothing will.
	ModeCancel Mode = "cancel"
	// ModeMutation means that the key stands for one durable mutation, and its outcomes are a receipt.
	ModeMutation Mode = "mutation"
	// ModeIdentity means that the key stands for something that one mutation alone may have, and its outcomes name that mutation.
	ModeIdentity Mode = "identity"
	// ModeFact means that the key is a fact's in an outbox, and is completed when that is published.
	ModeFact Mode = "fact"
	// ModeSeal means that the key was of no mutation and never will be.
	ModeSeal Mode = "seal"
)

// Standing is everything that the database knows of a key, from one snapshot.
type Standing struct {
	Proposal *Proposal // nil: the key has none
	Claim    *Claim    // nil: the key is not claimed

	// FixedSnapshot: the transaction reads as of its start (REPEATABLE READ, SERIALIZABLE), so what it does not see may
	// exist by now.
	FixedSnapshot bool
}

// Proposal is what Propose recorded.
type Proposal struct {
	Digest  contract.Digest
	Expired bool   // judged on the database's clock
	Content []byte // only if asked for
}

// Claim is the standing claim of a key.
type Claim struct {
	Digest    contract.Digest
	Attempt   uuid.UUID
	Fence     int64
	Mode      Mode
	LeaseOver bool   // judged on the database's clock; meaningless once completed
	Completed bool   // terminal, but for what Settle may replace
	Unsettled bool   // completed with an ambiguous outcome
	Outcomes  []byte // as Complete or Settle stored them, byte for byte; nil once purged
	Content   []byte // of a key without a proposal; only if asked for

	// Items are the records of an uncompleted claim's items by item id: nil for an item that was started and whose outcome
	// is not known, else its stored outcome.
	Items map[string][]byte

	// Observations are what attempts that had lost the key said of items; only if content is asked for.
	Observations []Observation
}

// Observation is what an attempt that had lost its key said of an item.
type Observation struct {
	Item    string
	Attempt uuid.UUID
	Outcome []byte
}
