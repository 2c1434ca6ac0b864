package toy

import (
	"context"

	"github.com/confirmexec/confirmexec/store"
)

// Own returns claims of which each call is a transaction.
func (s *Store) Own() store.Claims { return own{s} }

// In returns the claims of a transaction.
func (s *Store) In(tx *Tx) store.Claims { return claims{tx} }

// claims are those of a transaction.
type claims struct{ tx *Tx }

func (c claims) usable(ctx context.Context, op string) error {
	if c.tx.ended {
		return fault(op, store.ErrTxEnded, nil)
	}
	if err := ctx.Err(); err != nil {
		return fault(op, nil, err)
	}
	return nil
}

// change changes a key, or leaves it alone when the error is not nil.
func (c claims) change(ctx context.Context, op string, id store.ID, change func(k *key) error) error {
	if err := c.usable(ctx, op); err != nil {
		return err
	}
	k := c.tx.state.key(id).clone()
	if err := change(k); err != nil {
		return fault(op, err, nil)
	}
	c.tx.state.keys[id] = k
	return nil
}

func (c claims) Propose(ctx context.Context, p store.ProposeParams) error {
	return c.change(ctx, "propose", p.ID, func(k *key) error {
		if k.proposal != nil {
			return store.ErrDuplicate
		}
		k.proposal = &proposal{store.Proposal{Digest: p.Digest, Content: clone(p.Content)}, c.tx.store.now().Add(p.Expiry)}
		return nil
	})
}

func (c claims) Claim(ctx context.Context, p store.ClaimParams) (s store.Standing, err error) {
	if err := c.usable(ctx, "claim"); err != nil {
		return s, err
	}
	if err := c.meet(p.Tenant, p.Guards); err != nil {
		return s, err
	}
	err = c.change(ctx, "claim", p.ID, func(k *key) error {
		now := c.tx.store.now()
		if k.free(now, p) {
			k.claim = take(k, p)
			k.claim.made, k.claim.settled, k.claim.leaseEnds = now, now, now.Add(p.Lease)
		}
		s = k.standing(now, false)
		return nil
	})
	return s, err
}

func take(k *key, p store.ClaimParams) *claim {
	c := &claim{Claim: store.Claim{Digest: p.Digest, Attempt: p.Attempt, Fence: 1, Mode: p.Mode, Items: map[string][]byte{}}}
	if k.proposal == nil {
		c.Content = clone(p.Content)
	}
	if p.Outcomes != nil {
		c.Completed, c.Outcomes = true, clone(p.Outcomes)
	}
	if p.FirstItem != "" {
		c.Items[p.FirstItem] = nil
	}
	return c
}

func (c claims) Lookup(ctx context.Context, p store.LookupParams) (store.Standing, error) {
	if err := c.usable(ctx, "lookup"); err != nil {
		return store.Standing{}, err
	}
	if err := c.meet(p.Tenant, p.Guards); err != nil {
		return store.Standing{}, err
	}
	return c.tx.state.key(p.ID).standing(c.tx.store.now(), p.Content), nil
}

func (c claims) Progress(ctx context.Context, p store.ProgressParams) error {
	return c.change(ctx, "progress", p.ID, func(k *key) error {
		now := c.tx.store.now()
		if !k.holds(p.Fenced) || k.claim.leaseOver(now) {
			return store.ErrFenced
		}
		k.claim.record(p)
		if _, known := k.claim.Items[p.Next]; !known && p.Next != "" {
			k.claim.Items[p.Next] = nil
		}
		k.claim.leaseEnds = now.Add(p.Lease)
		return nil
	})
}

// commit is progress with an item's transaction: the item is recorded even if the lease has ended, but then nothing is renewed.
func (c claims) commit(ctx context.Context, p store.ProgressParams) error {
	k := c.tx.state.key(p.ID)
	if !k.holds(p.Fenced) || !k.claim.leaseOver(c.tx.store.now()) {
		return c.Progress(ctx, p)
	}
	return c.change(ctx, "progress", p.ID, func(k *key) error {
		k.claim.record(p)
		return nil
	})
}

func (c *claim) record(p store.ProgressParams) {
	if p.Done != "" && c.Items[p.Done] == nil {
		c.Items[p.Done] = clone(p.Outcome)
	}
}

func (c claims) Complete(ctx context.Context, p store.CompleteParams) error {
	return c.change(ctx, "complete", p.ID, func(k *key) error {
		if !k.holds(p.Fenced) {
			return store.ErrFenced
		}
		k.claim.Completed, k.claim.Outcomes, k.claim.Unsettled = true, clone(p.Outcomes), p.Unsettled
		k.claim.settled = c.tx.store.now()
		return nil
	})
}

// own are claims of which each call is a transaction.
type own struct{ store *Store }

func (o own) do(ctx context.Context, call func(claims) error) error {
	tx, err := o.store.BeginTx(ctx)
	if err != nil {
		return err
	}
	if err := call(claims{tx}); err != nil {
		_ = tx.end(false) // nobody else ends it
		return err
	}
	return tx.end(true)
}

func (o own) Propose(ctx context.Context, p store.ProposeParams) error {
	return o.do(ctx, func(c claims) error { return c.Propose(ctx, p) })
}

func (o own) Claim(ctx context.Context, p store.ClaimParams) (s store.Standing, err error) {
	err = o.do(ctx, func(c claims) error {
		s, err = c.Claim(ctx, p)
		return err
	})
	return s, err
}

// Lookup waits for the writer only where it must.
func (o own) Lookup(ctx context.Context, p store.LookupParams) (s store.Standing, err error) {
	if !p.Barrier && len(p.Guards) == 0 {
		read := &Tx{body: &body{store: o.store, state: o.store.read().clone()}}
		return claims{read}.Lookup(ctx, p)
	}
	err = o.do(ctx, func(c claims) error {
		s, err = c.Lookup(ctx, p)
		return err
	})
	return s, err
}

func (o own) Progress(ctx context.Context, p store.ProgressParams) error {
	return o.do(ctx, func(c claims) error { return c.Progress(ctx, p) })
}

func (o own) Complete(ctx context.Context, p store.CompleteParams) error {
	return o.do(ctx, func(c claims) error { return c.Complete(ctx, p) })
}
