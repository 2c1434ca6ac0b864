package toy

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/confirmexec/confirmexec/store"
)

// Keep returns what settles and keeps claims.
func (s *Store) Keep() store.Keeper { return keeper{own{s}} }

type keeper struct{ own }

func (k keeper) change(ctx context.Context, op string, id store.ID, change func(*key) error) error {
	return k.do(ctx, func(c claims) error { return c.change(ctx, op, id, change) })
}

func (k keeper) Seize(ctx context.Context, p store.SeizeParams) (s store.Standing, err error) {
	err = k.change(ctx, "seize", p.ID, func(key *key) error {
		now := k.store.now()
		if c := key.claim; c != nil && !c.Completed && c.leaseOver(now) {
			c.Fence++
			c.Attempt, c.leaseEnds = p.Attempt, now.Add(p.Lease)
		}
		s = key.standing(now, false)
		return nil
	})
	return s, err
}

func (k keeper) Settle(ctx context.Context, p store.CompleteParams) error {
	return k.change(ctx, "settle", p.ID, func(key *key) error {
		if !key.has(p.Attempt, p.Fence) || !key.claim.Unsettled {
			return store.ErrFenced
		}
		key.claim.Fence++
		key.claim.Outcomes, key.claim.Unsettled, key.claim.settled = clone(p.Outcomes), p.Unsettled, k.store.now()
		return nil
	})
}

func (k keeper) Observe(ctx context.Context, p store.ObserveParams) error {
	return k.change(ctx, "observe", p.ID, func(key *key) error {
		if key.claim == nil {
			return store.ErrFenced
		}
		o := store.Observation{Item: p.Item, Attempt: p.Attempt, Outcome: clone(p.Outcome)}
		all := key.claim.Observations
		if at, known := slices.BinarySearchFunc(all, o, byItem); !known {
			key.claim.Observations = slices.Insert(all, at, o)
		}
		return nil
	})
}

func byItem(a, b store.Observation) int {
	return cmp.Or(cmp.Compare(a.Item, b.Item), bytes.Compare(a.Attempt[:], b.Attempt[:]))
}

func (k keeper) List(ctx context.Context, p store.ListParams) (all []store.Open, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fault("list", nil, err)
	}
	now, s := k.store.now(), k.store.read()
	for _, id := range s.idsOf(p.Tenant) {
		c := s.keys[id].claim
		if c == nil || bytes.Compare(id.Key[:], p.After[:]) <= 0 || len(all) >= p.Limit {
			continue
		}
		observed := len(c.Observations) > 0
		if !c.Completed && c.leaseOver(now) || c.Unsettled || observed {
			all = append(all, store.Open{Key: id.Key, Mode: c.Mode, Age: now.Sub(c.made), Completed: c.Completed, Observed: observed})
		}
	}
	return all, nil
}

func (s *state) idsOf(tenant string) []store.ID {
	ids := slices.SortedFunc(maps.Keys(s.keys), func(a, b store.ID) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return slices.DeleteFunc(ids, func(id store.ID) bool { return id.Tenant != tenant })
}

func (k keeper) Purge(ctx context.Context, p store.PurgeParams) (purged int, err error) {
	err = k.do(ctx, func(c claims) error {
		for _, id := range c.tx.state.idsOf(p.Tenant) {
			if purged < p.Limit && c.tx.state.keys[id].purge(k.store.now().Add(-p.Retention)) {
				purged++
			}
		}
		return nil
	})
	return purged, err
}

// purge forgets the payloads of a key that was done with by then, and says whether there were any.
func (k *key) purge(then time.Time) (lost bool) {
	c, p := k.claim, k.proposal
	done := p != nil && p.expired(then)
	if c != nil {
		done = c.Completed && !c.Unsettled && c.Mode != store.ModeIdentity && len(c.Observations) == 0 && !c.settled.After(then)
	}
	if !done {
		return false
	}
	if p != nil {
		lost = p.Content != nil
		p.Content = nil
	}
	if c != nil {
		lost = lost || c.Outcomes != nil || c.Content != nil
		c.Outcomes, c.Content, c.Items = nil, nil, nil
	}
	return lost
}
