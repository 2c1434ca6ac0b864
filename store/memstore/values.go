package memstore

import (
	"context"

	"github.com/confirmexec/confirmexec/store"
)

// Values implements [store.Store]. A Tx is the store's only writer, and so holds every value to its end. Its calls fail with
// [store.ErrTxEnded] once tx has ended.
func (s *Store) Values(tx *Tx) store.Values { return values{txClaims{tx}} }

// values implements [store.Values].
type values struct{ in txClaims }

func (v values) Load(ctx context.Context, id store.ValueID) (store.Value, error) {
	return v.read(ctx, "memstore: load value", id)
}

func (v values) Hold(ctx context.Context, id store.ValueID) (store.Value, error) {
	return v.read(ctx, "memstore: hold value", id)
}

func (v values) read(ctx context.Context, op string, id store.ValueID) (store.Value, error) {
	if err := v.usable(ctx, op, id.Validate()); err != nil {
		return store.Value{}, err
	}
	return copyOf(v.in.tx.body.value(id)), nil
}

func (v values) Swap(ctx context.Context, p store.SwapParams) (store.Value, error) {
	const op = "memstore: swap value"
	if err := v.usable(ctx, op, p.Validate()); err != nil {
		return store.Value{}, err
	}
	stands := v.in.tx.body.value(p.ValueID)
	if stands.Revision != p.Revision {
		return copyOf(stands), &store.Error{Op: op, Kind: store.ErrRevision}
	}
	next := store.Value{Revision: p.Revision + 1, Content: clone(p.Content)}
	v.in.tx.body.putValue(p.ValueID, next)
	return copyOf(next), nil
}

func (v values) usable(ctx context.Context, op string, invalid error) error {
	if invalid != nil {
		return &store.Error{Op: op, Kind: invalid}
	}
	return v.in.usable(ctx, op)
}

// copyOf returns a copy that shares no memory with v.
func copyOf(v store.Value) store.Value {
	if v.Content != nil {
		v.Content = clone(v.Content)
	}
	return v
}

// meet refuses unless every guard is valid and met. The only writer is the lock.
func (c txClaims) meet(tenant string, guards []store.Guard) error {
	if err := store.ValidateGuards(guards); err != nil {
		return err
	}
	for _, g := range guards {
		if c.tx.body.value(store.ValueID{Tenant: tenant, Name: g.Name}).Revision != g.Revision {
			return store.ErrGuard
		}
	}
	return nil
}

// value returns a value as the transaction sees it.
func (b *body) value(id store.ValueID) store.Value {
	if v, ok := b.values[id]; ok {
		return v
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return b.store.values[id]
}

// putValue changes a value as the transaction sees it.
func (b *body) putValue(id store.ValueID, v store.Value) { put(b, b.values, id, v) }
