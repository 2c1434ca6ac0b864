package pgstore

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// claims implements [store.Claims] over a flight of either kind.
type claims struct {
	sql *statements
	via flight
}

func (c claims) Propose(ctx context.Context, p store.ProposeParams) error {
	var n int64
	err := c.via.send(ctx, p.Tenant, false, []step{{sql: c.sql.propose, affected: &n,
		args: []any{p.Tenant, p.Key.String(), p.Tenant, p.Digest[:], p.Expiry, p.Content}}})
	return c.only("propose", n, store.ErrDuplicate, err)
}

func (c claims) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	var s store.Standing
	steps := []step{c.claim(p)}
	if p.FirstItem != "" {
		first := store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: 1}
		steps = append(steps, step{sql: c.sql.startItem, args: append(heldArgs(first), p.FirstItem)})
	}
	err := c.via.send(ctx, p.Tenant, false, append(steps, c.stand(p.ID, false, &s)))
	return s, fault("claim", err)
}

func (c claims) claim(p store.ClaimParams) step {
	return step{sql: c.sql.claim, args: []any{p.Tenant, p.Key.String(), p.Tenant, p.Digest[:], p.Attempt, string(p.Mode), p.Lease,
		p.Outcomes, p.Content, p.AcceptUnminted}}
}

func (c claims) Lookup(ctx context.Context, p store.LookupParams) (store.Standing, error) {
	var s store.Standing
	steps := []step{c.stand(p.ID, p.Content, &s)}
	probe := uuid.New()
	if p.Barrier {
		steps = append([]step{{sql: c.sql.probe, args: []any{p.Tenant, p.Key.String(), p.Tenant, probe}}}, steps...)
	}
	err := c.via.send(ctx, p.Tenant, p.Barrier, steps)
	if s.Claim != nil && s.Claim.Attempt == probe {
		s.Claim = nil
	}
	return s, fault("look up", err)
}

func (c claims) Progress(ctx context.Context, p store.ProgressParams) error {
	var n int64
	steps := []step{
		{sql: c.sql.renew, args: append(heldArgs(p.Fenced), p.Lease), affected: &n},
		{sql: c.sql.finishItem, args: append(heldArgs(p.Fenced), p.Done, p.Outcome)},
	}
	if p.Next != "" {
		steps = append(steps, step{sql: c.sql.startItem, args: append(heldArgs(p.Fenced), p.Next)})
	}
	return c.only("record progress", n, store.ErrFenced, c.via.send(ctx, p.Tenant, false, steps))
}

func (c claims) Complete(ctx context.Context, p store.CompleteParams) error {
	var n int64
	err := c.via.send(ctx, p.Tenant, false,
		[]step{{sql: c.sql.complete, args: append(heldArgs(p.Fenced), p.Outcomes), affected: &n}})
	return c.only("complete", n, store.ErrFenced, err)
}

// only turns a write that did not change exactly one row into its kind of error.
func (claims) only(op string, rows int64, kind, err error) error {
	if err == nil && rows != 1 {
		err = kind
	}
	return fault(op, err)
}

// heldArgs are the parameters that every statement over `held` begins with.
func heldArgs(f store.Fenced) []any {
	return []any{f.Tenant, f.Key.String(), f.Tenant, f.Attempt, f.Fence}
}

func (c claims) stand(id store.ID, content bool, s *store.Standing) step {
	return step{sql: c.sql.stand, args: []any{id.Tenant, id.Key.String(), content},
		scan: func(r pgx.Row) error { return scanStanding(r, s) }}
}

// scanStanding reads standSQL's row. Columns of a side that does not exist are NULL.
func scanStanding(r pgx.Row, s *store.Standing) error {
	var (
		proposed, claimed        []byte
		expired, leaseOver       *bool
		proposalContent, content []byte
		attempt                  *uuid.UUID
		fence                    *int64
		mode                     *string
		completed                bool
		outcomes                 []byte
		items                    []string
		itemOutcomes             [][]byte
	)
	err := r.Scan(&proposed, &expired, &proposalContent, &claimed, &attempt, &fence, &mode, &leaseOver, &completed, &outcomes,
		&content, &items, &itemOutcomes, &s.FixedSnapshot)
	if err != nil {
		return err
	}
	if proposed != nil {
		s.Proposal = &store.Proposal{Digest: contract.Digest(proposed), Expired: *expired, Content: proposalContent}
	}
	if claimed != nil {
		s.Claim = &store.Claim{Digest: contract.Digest(claimed), Attempt: *attempt, Fence: *fence, Mode: store.Mode(*mode),
			LeaseOver: *leaseOver, Completed: completed, Outcomes: outcomes, Content: content, Items: records(items, itemOutcomes)}
	}
	return nil
}

func records(ids []string, outcomes [][]byte) map[string][]byte {
	if len(ids) == 0 {
		return nil
	}
	m := make(map[string][]byte, len(ids))
	for i, id := range ids {
		m[id] = outcomes[i]
	}
	return m
}
