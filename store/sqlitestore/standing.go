package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

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
	boundary          string
	digest            []byte
	attempt           string
	fence             int64
	mode              string
	over, done        bool
	content, outcomes []byte
	item              string
}

// scan adds the next row to s or to items.
func scan(rows *sql.Rows, s *store.Standing, items map[string][]byte) (err error) {
	var r row
	err = rows.Scan(&r.boundary, &r.digest, &r.attempt, &r.fence, &r.mode, &r.over, &r.done,
		&r.content, &r.outcomes, &r.item)
	if err != nil {
		return err
	}
	if r.done && r.boundary != "proposal" {
		r.outcomes = notNil(r.outcomes) // the driver reads an empty blob as nil
	}
	switch r.boundary {
	case "proposal":
		s.Proposal = r.proposal()
	case "operation":
		s.Claim, err = r.claim()
	case "item":
		items[r.item] = r.outcomes
	}
	return err
}

func (r *row) proposal() *store.Proposal {
	p := &store.Proposal{Expired: r.over, Content: r.content}
	copy(p.Digest[:], r.digest)
	return p
}

func (r *row) claim() (*store.Claim, error) {
	attempt, err := uuid.Parse(r.attempt)
	if err != nil {
		return nil, fmt.Errorf("the attempt of a claim is no UUID: %w", err)
	}
	c := &store.Claim{
		Attempt:   attempt,
		Fence:     r.fence,
		Mode:      store.Mode(r.mode),
		LeaseOver: r.over,
		Completed: r.done,
		Outcomes:  r.outcomes,
		Content:   r.content,
	}
	copy(c.Digest[:], r.digest)
	return c, nil
}
