package memstore

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

// Keep returns what settles and keeps claims. Each call but List waits for the store's only writer.
func (s *Store) Keep() store.Keeper { return keeper{s} }

// keeper implements [store.Keeper].
type keeper struct{ store *Store }

// update changes a key in a transaction of its own.
func (k keeper) update(ctx context.Context, op string, id store.ID, change func(record) (record, error)) error {
	return ownClaims(k).do(ctx, op, func(in txClaims) error { return in.update(ctx, op, id, change) })
}

func (k keeper) Seize(ctx context.Context, p store.SeizeParams) (s store.Standing, err error) {
	err = k.update(ctx, "memstore: seize", p.ID, func(r record) (record, error) {
		now := k.store.now()
		r = r.seize(now, p)
		s = r.standing(now, false)
		return r, nil
	})
	return s, err
}

func (k keeper) Settle(ctx context.Context, p store.CompleteParams) error {
	return k.update(ctx, "memstore: settle", p.ID, func(r record) (record, error) {
		return r.settle(k.store.now(), p)
	})
}

func (k keeper) Observe(ctx context.Context, p store.ObserveParams) error {
	return k.update(ctx, "memstore: observe", p.ID, func(r record) (record, error) { return r.observe(p) })
}

func (k keeper) List(ctx context.Context, p store.ListParams) ([]store.Open, error) {
	if err := ctx.Err(); err != nil {
		return nil, &store.Error{Op: "memstore: list", Cause: err}
	}
	now := k.store.now()
	var all []store.Open
	for id, r := range k.store.readTenant(p.Tenant) {
		if bytes.Compare(id.Key[:], p.After[:]) > 0 && r.needsSomebody(now) {
			all = append(all, r.claim.open(now, id.Key))
		}
	}
	slices.SortFunc(all, func(a, b store.Open) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return all[:min(len(all), max(p.Limit, 0))], nil
}

func (k keeper) Purge(ctx context.Context, p store.PurgeParams) (purged int, err error) {
	err = ownClaims(k).do(ctx, "memstore: purge", func(in txClaims) error {
		before := k.store.now().Add(-p.Retention)
		for _, id := range slices.SortedFunc(maps.Keys(k.store.readTenant(p.Tenant)), byKey) {
			if purged >= p.Limit {
				break
			}
			r, lost := in.tx.body.get(id).purge(before)
			if lost {
				in.tx.body.put(id, r)
				purged++
			}
		}
		return nil
	})
	return purged, err
}

func byKey(a, b store.ID) int { return bytes.Compare(a.Key[:], b.Key[:]) }

// open tells an operation that needs somebody.
func (c *claim) open(now time.Time, key uuid.UUID) store.Open {
	return store.Open{
		Key: key, Mode: c.mode, Age: now.Sub(c.made), Completed: c.completed, Observed: len(c.observations) > 0,
	}
}
