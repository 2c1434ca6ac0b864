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
	return only("propose", n, store.ErrDuplicate, err)
}

func (c claims) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	var s store.Standing
	if err := store.ValidateGuards(p.Guards); err != nil {
		return s, invalid("claim", err)
	}
	g := guardsOf(p.Tenant, p.Guards)
	err := c.via.send(ctx, p.Tenant, false, g.before(c.sql, c.sql.claimSteps(p, &s)))
	if sqlState(err) == divisionByZero { // it expired while the claim waited: nothing was claimed
		return c.Lookup(ctx, store.LookupParams{ID: p.ID, Barrier: true, Guards: p.Guards})
	}
	return c.told("claim", s, c.guarded(ctx, g, err))
}

func (s *statements) claimSteps(p store.ClaimParams, standing *store.Standing) []step {
	claim := s.claim
	if len(p.Guards) > 0 {
		claim = s.claimGuarded
	}
	steps := []step{{sql: claim, args: []any{p.Tenant, p.Key.String(), p.Tenant, p.Digest[:], p.Attempt, string(p.Mode), p.Lease,
		p.Outcomes, p.Content, p.AcceptUnminted}}}
	if p.FirstItem != "" {
		first := store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: 1}
		steps = append(steps, step{sql: s.startItem, args: append(heldArgs(first), p.FirstItem)})
	}
	if p.Outcomes == nil {
		first := store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: 1}
		steps = append(steps,
			step{sql: s.inTime, args: []any{p.Tenant, p.Key.String(), p.Attempt}},
			step{sql: s.raise, args: heldArgs(first)}) // in a caller's transaction nothing else has raised it
	}
	return append(steps, s.standStep(p.ID, false, standing))
}

func (c claims) Lookup(ctx context.Context, p store.LookupParams) (store.Standing, error) {
	var s store.Standing
	if err := store.ValidateGuards(p.Guards); err != nil {
		return s, invalid("look up", err)
	}
	steps, dry := []step{c.sql.standStep(p.ID, p.Content, &s)}, p.Barrier
	probe := uuid.New()
	if p.Barrier {
		before := []step{{sql: c.sql.probe, args: []any{p.Tenant, p.Key.String(), p.Tenant, probe}}}
		if p.AwaitWrites {
			before = append(before, step{sql: c.sql.await, args: []any{p.Tenant, p.Key.String()}})
		}
		steps = append(before, steps...)
		if p.AwaitWrites {
			steps, dry = acknowledged(steps), false
		}
	}
	g := guardsOf(p.Tenant, p.Guards)
	err := c.via.send(ctx, p.Tenant, dry, g.before(c.sql, steps))
	if s.Claim != nil && s.Claim.Attempt == probe {
		s.Claim = nil
	}
	return c.told("look up", s, c.guarded(ctx, g, err))
}

// acknowledged takes back what steps write, as a dry flight does, but has the flight end with a COMMIT that waits for a synchronous
// standby as that of a write does: what steps have seen is told only once it cannot be lost any more. A COMMIT whose wait for the
// standby was cancelled, as pgx does when its context ends, can be seen by all, and is on no other server yet.
func acknowledged(steps []step) []step {
	return surround(step{sql: "SAVEPOINT confirmexec_probe"}, steps,
		step{sql: "ROLLBACK TO SAVEPOINT confirmexec_probe"}, step{sql: emitSQL})
}

// guarded is the error of a flight with guards.
func (c claims) guarded(ctx context.Context, g *guards, err error) error {
	if err != nil {
		return err
	}
	return g.refusal(ctx, c.via, c.sql)
}

// told is how a key stands, unless there is an error.
func (claims) told(op string, s store.Standing, err error) (store.Standing, error) {
	if err != nil {
		return store.Standing{}, fault(op, err)
	}
	return s, nil
}

func (c claims) Progress(ctx context.Context, p store.ProgressParams) error {
	var n int64
	// The row is locked first: whether the lease still runs is judged after the wait for it, not before.
	steps := append([]step{{sql: c.sql.hold, args: heldArgs(p.Fenced)}}, c.sql.progressSteps(c.sql.finishLiveItem, p, &n)...)
	err := c.via.send(ctx, p.Tenant, false, steps)
	return only("record progress", n, store.ErrFenced, err)
}

func (s *statements) progressSteps(finishItem string, p store.ProgressParams, n *int64) []step {
	steps := []step{
		{sql: s.renew, args: append(heldArgs(p.Fenced), p.Lease), affected: n},
		{sql: finishItem, args: append(heldArgs(p.Fenced), p.Done, p.Outcome)},
	}
	if p.Next != "" {
		steps = append(steps, step{sql: s.startItem, args: append(heldArgs(p.Fenced), p.Next)})
	}
	return steps
}

func (c claims) Complete(ctx context.Context, p store.CompleteParams) error {
	var n int64
	err := c.via.send(ctx, p.Tenant, false, []step{c.sql.completeStep(p, &n)})
	return only("complete", n, store.ErrFenced, err)
}

func (s *statements) completeStep(p store.CompleteParams, n *int64) step {
	return step{sql: s.complete, args: append(heldArgs(p.Fenced), p.Outcomes, p.Unsettled), affected: n}
}

// only turns a write that did not change exactly one row into its kind of error.
func only(op string, rows int64, kind, err error) error {
	if err == nil && rows != 1 {
		err = kind
	}
	return fault(op, err)
}

// heldArgs are the parameters that every statement over `held` begins with.
func heldArgs(f store.Fenced) []any {
	return []any{f.Tenant, f.Key.String(), f.Tenant, f.Attempt, f.Fence}
}

func (s *statements) standStep(id store.ID, content bool, standing *store.Standing) step {
	return step{sql: s.stand, args: []any{id.Tenant, id.Key.String(), content}, keyless: true,
		scan: func(r pgx.Row) error { return scanStanding(r, standing) }}
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
		completed, unsettled     bool
		outcomes                 []byte
		items, seen              []string
		itemOutcomes, said       [][]byte
		observers                []uuid.UUID
	)
	err := r.Scan(&proposed, &expired, &proposalContent, &claimed, &attempt, &fence, &mode, &leaseOver, &completed, &unsettled, &outcomes,
		&content, &items, &itemOutcomes, &seen, &observers, &said, &s.FixedSnapshot)
	if err != nil {
		return err
	}
	if proposed != nil {
		s.Proposal = &store.Proposal{Digest: contract.Digest(proposed), Expired: *expired, Content: proposalContent}
	}
	if claimed != nil {
		s.Claim = &store.Claim{Digest: contract.Digest(claimed), Attempt: *attempt, Fence: *fence, Mode: store.Mode(*mode),
			LeaseOver: *leaseOver, Completed: completed, Unsettled: unsettled, Outcomes: outcomes, Content: content,
			Items: records(items, itemOutcomes)}
		for i := range seen {
			s.Claim.Observations = append(s.Claim.Observations, store.Observation{Item: seen[i], Attempt: observers[i], Outcome: said[i]})
		}
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
