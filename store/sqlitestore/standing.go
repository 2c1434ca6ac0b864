package sqlitestore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

// standing reads how a key stands.
func standing(ctx context.Context, q querier, id store.ID, content bool) (store.Standing, error) {
	rows, err := q.QueryContext(ctx, selectStanding, id.Tenant, id.Key.String(), content)
	if err != nil {
		return store.Standing{}, err
	}
	defer func() { _ = rows.Close() }()
	var s store.Standing
	items := make(map[string][]byte)
	for rows.Next() {
		if err := scan(rows, &s, items); err != nil {
			return store.Standing{}, err
		}
	}
	if s.Claim != nil && !s.Claim.Completed {
		s.Claim.Items = items
	}
	return s, rows.Err()
}

// row is a row of selectStanding.
type row struct {
	boundary              string
	digest                []byte
	attempt               string
	fence                 int64
	mode                  string
	over, done, unsettled bool
	content, outcomes     []byte
	told                  bool // outcomes is not NULL
	item                  string
}

// scan adds the next row to s or to items.
func scan(rows *sql.Rows, s *store.Standing, items map[string][]byte) (err error) {
	var r row
	err = rows.Scan(&r.boundary, &r.digest, &r.attempt, &r.fence, &r.mode, &r.over, &r.done, &r.unsettled,
		&r.content, &r.outcomes, &r.told, &r.item)
	if err != nil {
		return err
	}
	if r.told {
		r.outcomes = notNil(r.outcomes) // the driver reads an empty blob as nil
	}
	switch r.boundary {
	case "proposal":
		s.Proposal = r.proposal()
	case "operation":
		s.Claim, err = r.claim()
	case "item":
		items[r.item] = r.outcomes
	case "observation":
		err = r.observe(s.Claim)
	}
	return err
}

func (r *row) proposal() *store.Proposal {
	p := &store.Proposal{Expired: r.over, Content: r.content}
	copy(p.Digest[:], r.digest)
	return p
}

func (r *row) claim() (*store.Claim, error) {
	attempt, err := r.parseAttempt()
	c := &store.Claim{
		Attempt:   attempt,
		Fence:     r.fence,
		Mode:      store.Mode(r.mode),
		LeaseOver: r.over,
		Completed: r.done,
		Unsettled: r.unsettled,
		Outcomes:  r.outcomes,
		Content:   r.content,
	}
	copy(c.Digest[:], r.digest)
	return c, err
}

// observe adds the row to c's observations, in the order of their items and attempts.
func (r *row) observe(c *store.Claim) error {
	attempt, err := r.parseAttempt()
	if err != nil || c == nil {
		return err
	}
	o := store.Observation{Item: r.item, Attempt: attempt, Outcome: r.outcomes}
	at, _ := slices.BinarySearchFunc(c.Observations, o, byItem)
	c.Observations = slices.Insert(c.Observations, at, o)
	return nil
}

func byItem(a, b store.Observation) int {
	return cmp.Or(cmp.Compare(a.Item, b.Item), bytes.Compare(a.Attempt[:], b.Attempt[:]))
}

func (r *row) parseAttempt() (uuid.UUID, error) {
	attempt, err := uuid.Parse(r.attempt)
	if err != nil {
		err = fmt.Errorf("the attempt of a claim is no UUID: %w", err)
	}
	return attempt, err
}
