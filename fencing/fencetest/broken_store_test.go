package fencetest_test

import (
	"context"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

// rows is a store whose keys are not unique.
type rows struct{ store.Store[tx] }

func (s rows) In(t tx) store.Claims { return rowClaims{s.Store.In(t)} }

type rowClaims struct{ store.Claims }

func (rowClaims) Lookup(context.Context, store.LookupParams) (store.Standing, error) {
	return store.Standing{}, nil
}

func (c rowClaims) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	s, err := c.Claims.Claim(ctx, p)
	if err == nil && s.Claim != nil && s.Claim.Attempt != p.Attempt {
		p.Key = uuid.New()
		return c.Claims.Claim(ctx, p)
	}
	return s, err
}

func rowPerReport(h *harness) { h.Store = rows{h.Store} }

// committing is a store that never takes anything back.
type committing struct{ store.Store[tx] }

func (s committing) Rollback(ctx context.Context, t tx) error {
	return s.Commit(ctx, t, store.Closing{})
}

func commitsAll(h *harness) { h.Store = committing{h.Store} }
