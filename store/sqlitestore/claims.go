package sqlitestore

import (
	"context"

	"github.com/confirmexec/confirmexec/store"
)

// claims implements [store.Claims]; where it writes and reads is what its runners stand for.
type claims struct{ write, read runner }

// firstFence is the fence of a new claim. Zero is none.
const firstFence = 1

func (c claims) Propose(ctx context.Context, p store.ProposeParams) error {
	return c.write(ctx, "sqlitestore: propose", func(ctx context.Context, q querier) error {
		return one(ctx, q, store.ErrDuplicate, insertProposal,
			p.Tenant, p.Key.String(), p.Digest[:], p.Expiry.Seconds(), p.Content)
	})
}

func (c claims) Claim(ctx context.Context, p store.ClaimParams) (s store.Standing, err error) {
	if err := store.ValidateGuards(p.Guards); err != nil {
		return s, refused("sqlitestore: claim", err)
	}
	err = c.write(ctx, "sqlitestore: claim", func(ctx context.Context, q querier) error {
		s, err = claim(ctx, q, p)
		return err
	})
	if err != nil {
		return store.Standing{}, err
	}
	return s, nil
}

func claim(ctx context.Context, q querier, p store.ClaimParams) (store.Standing, error) {
	if err := meet(ctx, q, p.Tenant, p.Guards); err != nil {
		return store.Standing{}, err
	}
	if err := take(ctx, q, p); err != nil {
		return store.Standing{}, err
	}
	return standing(ctx, q, p.ID, false)
}

// take claims the key if it is free, with its first item.
func take(ctx context.Context, q querier, p store.ClaimParams) error {
	n, err := affect(ctx, q, insertClaim,
		p.Tenant, p.Key.String(), p.Digest[:], p.Attempt.String(), firstFence, string(p.Mode), p.Lease.Seconds(),
		p.AcceptUnminted, p.Content, p.Outcomes != nil, p.Outcomes)
	if err != nil || n == 0 || p.FirstItem == "" {
		return err
	}
	return start(ctx, q, store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: firstFence}, p.FirstItem)
}

func (c claims) Lookup(ctx context.Context, p store.LookupParams) (s store.Standing, err error) {
	if err := store.ValidateGuards(p.Guards); err != nil {
		return s, refused("sqlitestore: lookup", err)
	}
	run := c.read
	if p.Barrier || len(p.Guards) > 0 {
		run = c.write // the only writer is the barrier: no claim is under way while it is held
	}
	err = run(ctx, "sqlitestore: lookup", func(ctx context.Context, q querier) error {
		if p.Barrier {
			if _, err := affect(ctx, q, becomeWriter); err != nil {
				return err
			}
		}
		if err := meet(ctx, q, p.Tenant, p.Guards); err != nil {
			return err
		}
		s, err = standing(ctx, q, p.ID, p.Content)
		return err
	})
	if err != nil {
		return store.Standing{}, err
	}
	return s, nil
}

func (c claims) Progress(ctx context.Context, p store.ProgressParams) error {
	return c.write(ctx, "sqlitestore: progress", func(ctx context.Context, q querier) error { return progress(ctx, q, p) })
}

func (c claims) Complete(ctx context.Context, p store.CompleteParams) error {
	return c.write(ctx, "sqlitestore: complete", func(ctx context.Context, q querier) error { return complete(ctx, q, p) })
}

func progress(ctx context.Context, q querier, p store.ProgressParams) error {
	err := one(ctx, q, store.ErrFenced, renewLease, fencedArgs(p.Fenced, p.Lease.Seconds())...)
	if err == nil {
		err = finish(ctx, q, p)
	}
	if err == nil && p.Next != "" {
		err = start(ctx, q, p.Fenced, p.Next)
	}
	return err
}

func complete(ctx context.Context, q querier, p store.CompleteParams) error {
	return one(ctx, q, store.ErrFenced, completeClaim, fencedArgs(p.Fenced, notNil(p.Outcomes), p.Unsettled)...)
}

// finish records the outcome of an item, if the claim is held.
func finish(ctx context.Context, q querier, p store.ProgressParams) error {
	if p.Done == "" {
		return nil
	}
	_, err := affect(ctx, q, storeItem, fencedArgs(p.Fenced, p.Done, notNil(p.Outcome))...)
	return err
}

// start records that an item was started.
func start(ctx context.Context, q querier, f store.Fenced, item string) error {
	_, err := affect(ctx, q, startItem, fencedArgs(f, item)...)
	return err
}

// fencedArgs are the arguments of a statement under the fence f: ?1 to ?4, and then more.
func fencedArgs(f store.Fenced, more ...any) []any {
	return append([]any{f.Tenant, f.Key.String(), f.Attempt.String(), f.Fence}, more...)
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// affect runs a statement and tells how many rows it changed.
func affect(ctx context.Context, q querier, query string, args ...any) (int64, error) {
	r, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// one runs a statement that must change a row; otherwise the error is otherwise.
func one(ctx context.Context, q querier, otherwise error, query string, args ...any) error {
	n, err := affect(ctx, q, query, args...)
	if err == nil && n == 0 {
		err = otherwise
	}
	return err
}
