package broker

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Broker executes confirmed operations over one store. TTx is the transaction type of the store's driver, which New infers.
// A Broker has no state of its own: it is safe for concurrent use, any number of processes may each have one over the same
// database, and nothing needs closing.
//
// Every refusal is an error with a [contract.Failure] in its chain: match it with errors.Is against contract.ErrStale,
// contract.ErrKeyReused and so on, or read its code with contract.CodeOf. Replays, ambiguous and cancelled answers are
// results with a nil error; [contract.OperationResult.Err] says whether any item needs attention.
type Broker[TTx any] struct {
	store store.Store[TTx]
	cfg   Config
}

// New returns a Broker over st. A nil cfg means the defaults. The error is a *[contract.InvalidError] that names the field.
func New[TTx any](st store.Store[TTx], cfg *Config) (*Broker[TTx], error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Broker[TTx]{store: st, cfg: c}, nil
}

// Request is one confirm, with what the service knows that the client must not say.
type Request struct {
	// Tenant owns the key: the authenticated one, never one that the client names.
	Tenant string
	// Confirmation is what the person confirmed, as the client echoed it.
	Confirmation contract.OperationConfirmation
	// Current is the surface as the service has just read it again. The zero value is stale.
	Current contract.CurrentSurfaceState

	// Guards are values of the tenant ([store.Values]) that must have these revisions for the operation to begin, such as the
	// epoch that the caller acts under: contract.ErrGuardNotMet otherwise, before whatever the key says, a replay included.
	// They are checked and locked in the claim's own transaction, without a round trip more.
	//
	// [Broker.ExecuteTx] and [Broker.ExecuteAtomic] hold them until the commit: what changes a value comes wholly before the
	// operation or wholly after it. So does [Broker.ExecutePerItem] for each item; an item whose guards are not met any more is
	// failed, for contract.ReasonGuard. For [Broker.Execute] they are checked at the claim only: what its executor does after
	// that is fenced by its target, with [Item.Fence], or not at all.
	Guards []store.Guard
}

// clone is the request as it stands now: what the caller, or an executor, does to its own later changes nothing.
func (r Request) clone() Request {
	r.Guards = slices.Clone(r.Guards)
	items := slices.Clone(r.Confirmation.Items)
	for i := range items {
		items[i].Params = bytes.Clone(items[i].Params)
	}
	r.Confirmation.Items = items
	return r
}

// TxRequest is a Request for a mode that works inside a transaction.
type TxRequest[TTx any] struct {
	Request

	// ReadSurface, if set, reads the surface inside the transaction instead of Current, so that the check and the write
	// cannot be separated. It should lock what it reads (FOR SHARE, or FOR UPDATE of a row that the executor changes). It is
	// called only for a key that is not claimed yet; its error refuses the confirm and nothing is claimed.
	ReadSurface func(ctx context.Context, tx TTx) (contract.CurrentSurfaceState, error)
}

// attempt is one confirm on its way: the request, its digest, and an id of its own by which it recognises its claim.
type attempt struct {
	Request
	method string
	mode   store.Mode
	id     uuid.UUID
	digest contract.Digest
	owned  bool // the last try has held the key: nothing was done under it by then
}

// newAttempt is the first answer of all: shape and limits, before the store is touched.
func (b *Broker[TTx]) newAttempt(method string, mode store.Mode, req Request, noExecutor bool) (*attempt, error) {
	if noExecutor {
		return nil, &contract.InvalidError{Path: "/executor", Problem: "must not be nil"}
	}
	if err := contract.ValidateTenant(req.Tenant); err != nil {
		return nil, err
	}
	if err := req.Confirmation.Validate(b.cfg.Limits); err != nil {
		return nil, err
	}
	if err := store.ValidateGuards(req.Guards); err != nil {
		return nil, err
	}
	req = req.clone()
	digest, err := contract.DigestOf(req.Confirmation.Proposal())
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, unavailable(err)
	}
	return &attempt{Request: req, method: method, mode: mode, id: id, digest: digest}, nil
}

func (a *attempt) keyID() store.ID {
	return store.ID{Tenant: a.Tenant, Key: a.Confirmation.IdempotencyKey}
}

// held is the standing claim, which is this attempt's own.
func (a *attempt) held(s store.Standing) *store.Fenced {
	a.owned = true
	return &store.Fenced{ID: a.keyID(), Attempt: a.id, Fence: s.Claim.Fence}
}

// holds says whether the standing claim is this attempt's own.
func (a *attempt) holds(s store.Standing) bool { return s.Claim != nil && s.Claim.Attempt == a.id }

// detached is a context for the broker's own calls on the store: it keeps the caller's values, so that the caller's span is
// used (S23), but not its end. A client that hangs up never costs an outcome.
func (b *Broker[TTx]) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), b.cfg.StoreTimeout)
}

// bounded is a context for calls on the store that end with the caller's, too: reads, and what comes before anything is the attempt's.
func (b *Broker[TTx]) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.cfg.StoreTimeout)
}

// leaseEnd is when executors must be done under a lease that is being asked for now: a while before its end, on this process's
// monotonic clock, so that what they did is recorded within it.
func (b *Broker[TTx]) leaseEnd() time.Time {
	return time.Now().Add(b.cfg.Lease - min(b.cfg.Lease/5, 2*returnGrace))
}
