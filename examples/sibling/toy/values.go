package toy

import (
	"context"

	"github.com/confirmexec/confirmexec/store"
)

// Values returns the versioned values in a transaction, which is the only writer and so holds them all.
func (s *Store) Values(tx *Tx) store.Values { return values{claims{tx}} }

type values struct{ in claims }

func (v values) Load(ctx context.Context, id store.ValueID) (store.Value, error) {
	if err := id.Validate(); err != nil {
		return store.Value{}, fault("load", err, nil)
	}
	if err := v.in.usable(ctx, "load"); err != nil {
		return store.Value{}, err
	}
	stands := v.in.tx.state.values[id]
	stands.Content = told(stands.Content)
	return stands, nil
}

func (v values) Hold(ctx context.Context, id store.ValueID) (store.Value, error) {
	return v.Load(ctx, id)
}

func (v values) Swap(ctx context.Context, p store.SwapParams) (store.Value, error) {
	if err := p.Validate(); err != nil {
		return store.Value{}, fault("swap", err, nil)
	}
	stands, err := v.Load(ctx, p.ValueID)
	if err != nil {
		return store.Value{}, err
	}
	if stands.Revision != p.Revision {
		return stands, fault("swap", store.ErrRevision, nil)
	}
	v.in.tx.state.values[p.ValueID] = store.Value{Revision: p.Revision + 1, Content: clone(p.Content)}
	return v.Load(ctx, p.ValueID)
}

// meet refuses unless every guard is met.
func (c claims) meet(tenant string, guards []store.Guard) error {
	if err := store.ValidateGuards(guards); err != nil {
		return fault("guards", err, nil)
	}
	for _, g := range guards {
		if c.tx.state.values[store.ValueID{Tenant: tenant, Name: g.Name}].Revision != g.Revision {
			return fault("guards", store.ErrGuard, nil)
		}
	}
	return nil
}
