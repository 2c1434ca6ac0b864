package memstore

import (
	"context"

	"github.com/confirmexec/confirmexec/store"
)

// txClaims are the claims of a transaction.
type txClaims struct{ tx *Tx }

// update changes a key, or nothing when change returns an error: one of store's sentinels.
func (c txClaims) update(ctx context.Context, op string, id store.ID, change func(record) (record, error)) error {
	if err := c.usable(ctx, op); err != nil {
		return err
	}
	r, err := change(c.tx.body.get(id))
	if err != nil {
		return &store.Error{Op: op, Kind: err}
	}
	c.tx.body.put(id, r)
	return nil
}

func (c txClaims) usable(ctx context.Context, op string) error {
	if c.tx.ended() {
		return &store.Error{Op: op, Kind: store.ErrTxEnded}
	}
	if err := ctx.Err(); err != nil {
		return &store.Error{Op: op, Cause: err}
	}
	return nil
}

func (c txClaims) Propose(ctx context.Context, p store.ProposeParams) error {
	return c.update(ctx, "memstore: propose", p.ID, func(r record) (record, error) {
		return r.propose(c.tx.body.store.now(), p)
	})
}

func (c txClaims) Claim(ctx context.Context, p store.ClaimParams) (s store.Standing, err error) {
	err = c.update(ctx, "memstore: claim", p.ID, func(r record) (record, error) {
		if err := c.meet(p.Tenant, p.Guards); err != nil {
			return r, err
		}
		now := c.tx.body.store.now()
		r = r.take(now, p)
		s = r.standing(now, false)
		return r, nil
	})
	return s, err
}

func (c txClaims) Lookup(ctx context.Context, p store.LookupParams) (store.Standing, error) {
	const op = "memstore: lookup"
	if err := c.usable(ctx, op); err != nil {
		return store.Standing{}, err
	}
	if err := c.meet(p.Tenant, p.Guards); err != nil {
		return store.Standing{}, &store.Error{Op: op, Kind: err}
	}
	return c.tx.body.get(p.ID).standing(c.tx.body.store.now(), p.Content), nil
}

func (c txClaims) Progress(ctx context.Context, p store.ProgressParams) error {
	return c.update(ctx, "memstore: progress", p.ID, func(r record) (record, error) {
		return r.progress(c.tx.body.store.now(), p)
	})
}

func (c txClaims) Complete(ctx context.Context, p store.CompleteParams) error {
	return c.update(ctx, "memstore: complete", p.ID, func(r record) (record, error) {
		return r.complete(c.tx.body.store.now(), p)
	})
}

// ownClaims are the claims of the store itself: each call is a transaction.
type ownClaims struct{ store *Store }

// do runs call in a transaction of its own.
func (c ownClaims) do(ctx context.Context, op string, call func(txClaims) error) error {
	tx, err := c.store.begin(ctx, op)
	if err != nil {
		return err
	}
	if err := call(txClaims{tx}); err != nil {
		_ = tx.Rollback() // cannot fail: nobody else ends this transaction
		return err
	}
	return tx.Commit()
}

func (c ownClaims) Propose(ctx context.Context, p store.ProposeParams) error {
	return c.do(ctx, "memstore: propose", func(in txClaims) error { return in.Propose(ctx, p) })
}

func (c ownClaims) Claim(ctx context.Context, p store.ClaimParams) (s store.Standing, err error) {
	err = c.do(ctx, "memstore: claim", func(in txClaims) error {
		s, err = in.Claim(ctx, p)
		return err
	})
	return s, err
}

func (c ownClaims) Lookup(ctx context.Context, p store.LookupParams) (s store.Standing, err error) {
	if err := ctx.Err(); err != nil {
		return s, &store.Error{Op: "memstore: lookup", Cause: err}
	}
	if !p.Barrier && len(p.Guards) == 0 {
		return c.store.read(p.ID).standing(c.store.now(), p.Content), nil
	}
	err = c.do(ctx, "memstore: lookup", func(in txClaims) error {
		s, err = in.Lookup(ctx, p)
		return err
	})
	return s, err
}

func (c ownClaims) Progress(ctx context.Context, p store.ProgressParams) error {
	return c.do(ctx, "memstore: progress", func(in txClaims) error { return in.Progress(ctx, p) })
}

func (c ownClaims) Complete(ctx context.Context, p store.CompleteParams) error {
	return c.do(ctx, "memstore: complete", func(in txClaims) error { return in.Complete(ctx, p) })
}
