package broker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Page asks for a page of a tenant's keys.
type Page struct {
	Tenant string
	After  uuid.UUID // the last key of the page before; the nil UUID: from the start
	Limit  int       // 1 to 1000. Default 100.
}

// UnresolvedKey is a key that needs somebody.
type UnresolvedKey struct {
	Key uuid.UUID
	Age time.Duration // since it was claimed, on the database's clock
	// Completed says that it was completed, with an ambiguous item or contested; else it was never completed and its lease is
	// over. Resolve settles what is ambiguous or was never completed.
	Completed bool
	// Contested says that an attempt that had lost the key contradicts what the key says of an item: see
	// Status.Contradictions of Lookup. It stays: nothing acknowledges a contradiction.
	Contested bool
}

// ListUnresolved tells a page of the tenant's keys that need somebody, in the order of their keys, which for minted ones is
// oldest first. The next page begins after the last key of this one; an empty page is the end. Nothing resolves in the
// background by itself.
//
// It reads through the tenant's operations: keep the last key of a page that was settled to begin there next time. Errors:
// *[contract.InvalidError], [contract.ErrDenied], [contract.ErrUnavailable].
func (b *Broker[TTx]) ListUnresolved(ctx context.Context, p Page) (page []UnresolvedKey, err error) {
	defer func(start time.Time) { b.observe(ctx, "list_unresolved", start, nil, err) }(time.Now())
	err = b.eachOpen(ctx, "list_unresolved", p, func(ctx context.Context, o store.Open) (bool, error) {
		if !ofConfirmation(o.Mode) {
			return false, nil
		}
		u, needed, err := b.unresolved(ctx, p.Tenant, o)
		if needed {
			page = append(page, u)
		}
		return needed, err
	})
	return page, err
}

// eachOpen calls fn for the page's keys, and for those of the next pages while fn needs none: a page that turns out to hold
// nothing is not the end.
func (b *Broker[TTx]) eachOpen(ctx context.Context, method string, p Page, fn func(context.Context, store.Open) (needed bool, err error),
) error {
	if err := b.admitPage(ctx, method, &p); err != nil {
		return err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	for found := false; !found; {
		open, err := b.store.Keep().List(ctx, store.ListParams{Tenant: p.Tenant, After: p.After, Limit: p.Limit})
		if err != nil {
			return fromStore(err)
		}
		if len(open) == 0 {
			return nil
		}
		for _, o := range open {
			needed, err := fn(ctx, o)
			if err != nil {
				return err
			}
			found = found || needed
		}
		p.After = open[len(open)-1].Key
	}
	return nil
}

// unresolved tells whether a listed key needs somebody. What an attempt that had lost its key said is looked at: the key may say
// the same by now.
func (b *Broker[TTx]) unresolved(ctx context.Context, tenant string, o store.Open) (u UnresolvedKey, needed bool, err error) {
	u = UnresolvedKey{Key: o.Key, Age: o.Age, Completed: o.Completed}
	if !o.Observed {
		return u, true, nil
	}
	s, err := b.store.Own().Lookup(ctx, store.LookupParams{ID: store.ID{Tenant: tenant, Key: o.Key}, Content: true})
	if err != nil || s.Claim == nil {
		return u, false, fromStore(err)
	}
	against, err := contradictions(s.Claim)
	u.Contested = len(against) > 0
	return u, u.Contested || s.Claim.Unsettled || !s.Claim.Completed && s.Claim.LeaseOver, err
}

// Purge forgets the payloads of up to p.Limit of the tenant's keys (p.After is not used) that were settled, or expired
// unconfirmed, longer than Config.PayloadRetention ago: content, outcomes and details. The key itself stays, with its digest: a
// confirm of it is answered "pruned" or "expired" for ever, and never runs. Unresolved and contested keys are left alone. Call it
// until it returns 0.
//
// Errors as for ListUnresolved.
func (b *Broker[TTx]) Purge(ctx context.Context, p Page) (purged int, err error) {
	defer func(start time.Time) { b.observe(ctx, "purge", start, nil, err) }(time.Now())
	if err := b.admitPage(ctx, "purge", &p); err != nil {
		return 0, err
	}
	ctx, cancel := b.detached(ctx)
	defer cancel()
	purged, err = b.store.Keep().Purge(ctx, store.PurgeParams{Tenant: p.Tenant, Retention: b.cfg.PayloadRetention, Limit: p.Limit})
	return purged, fromStore(err)
}

// admitPage checks p, fills its default, and asks the authoriser.
func (b *Broker[TTx]) admitPage(ctx context.Context, method string, p *Page) error {
	if err := contract.ValidateTenant(p.Tenant); err != nil {
		return err
	}
	if p.Limit == 0 {
		p.Limit = 100
	}
	if p.Limit < 1 || p.Limit > 1000 {
		return &contract.InvalidError{Path: "/limit", Problem: "must be from 1 to 1000, or 0 for 100"}
	}
	return b.authorize(ctx, method, store.ID{Tenant: p.Tenant})
}

// Contradiction is what an attempt that had lost its key said of an item, against what the key says. The verdict stands; somebody
// has to look.
type Contradiction struct {
	Attempt uuid.UUID
	Said    contract.OperationItemOutcome
}

// contradictions are the observations of a completed claim that do not agree with its outcomes.
func contradictions(claim *store.Claim) ([]Contradiction, error) {
	var all []Contradiction
	for _, seen := range claim.Observations {
		said, err := contract.DecodeOutcomes(seen.Outcome)
		if err != nil || len(said) != 1 {
			return nil, unreadable(err)
		}
		if !agrees(claim, said[0]) {
			all = append(all, Contradiction{Attempt: seen.Attempt, Said: said[0]})
		}
	}
	return all, nil
}
