package memstore

import (
	"bytes"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// record is everything known of a key. It is a value: nothing that it points to is ever changed, only replaced.
type record struct {
	proposal *proposal
	claim    *claim
}

type proposal struct {
	digest  contract.Digest
	content []byte
	expires time.Time
}

type claim struct {
	digest       contract.Digest
	attempt      uuid.UUID
	fence        int64
	mode         store.Mode
	made         time.Time
	leaseEnds    time.Time
	completed    bool
	settled      time.Time // when the outcomes were stored that stand
	unsettled    bool
	outcomes     []byte // nil once purged
	content      []byte
	items        map[string][]byte   // nil: started
	observations []store.Observation // in the order of their items and attempts
}

// propose returns r with a proposal, unless it has one.
func (r record) propose(now time.Time, p store.ProposeParams) (record, error) {
	if r.proposal != nil {
		return r, store.ErrDuplicate
	}
	r.proposal = &proposal{digest: p.Digest, content: bytes.Clone(p.Content), expires: now.Add(p.Expiry)}
	return r, nil
}

// take returns r with a claim, if the key is free for it.
func (r record) take(now time.Time, p store.ClaimParams) record {
	if r.claim != nil || !r.allows(now, p) {
		return r
	}
	c := &claim{digest: p.Digest, attempt: p.Attempt, fence: 1, mode: p.Mode, made: now, leaseEnds: now.Add(p.Lease)}
	if r.proposal == nil {
		c.content = bytes.Clone(p.Content)
	}
	if p.Outcomes != nil {
		c.completed, c.settled, c.outcomes = true, now, clone(p.Outcomes)
	}
	if p.FirstItem != "" {
		c.items = map[string][]byte{p.FirstItem: nil}
	}
	r.claim = c
	return r
}

// allows tells whether the proposal, or its absence, lets the key be claimed.
func (r record) allows(now time.Time, p store.ClaimParams) bool {
	if r.proposal == nil {
		return p.AcceptUnminted
	}
	return r.proposal.digest == p.Digest && (p.Outcomes != nil || !r.proposal.expired(now))
}

func (p *proposal) expired(now time.Time) bool { return !now.Before(p.expires) }

// holds tells whether f is the standing fence of an uncompleted claim.
func (r record) holds(f store.Fenced) bool {
	return r.claim != nil && !r.claim.completed && r.claim.attempt == f.Attempt && r.claim.fence == f.Fence
}

// live tells whether f is the standing fence of an uncompleted claim whose lease runs.
func (r record) live(now time.Time, f store.Fenced) bool {
	return r.holds(f) && now.Before(r.claim.leaseEnds)
}

// progress returns r with an item's outcome, the next item started and a new lease.
func (r record) progress(now time.Time, p store.ProgressParams) (record, error) {
	if !r.live(now, p.Fenced) {
		return r, store.ErrFenced
	}
	r = r.finish(p)
	c := *r.claim
	c.leaseEnds = now.Add(p.Lease)
	if _, known := c.items[p.Next]; p.Next != "" && !known {
		c.items[p.Next] = nil // finish has just made the map
	}
	r.claim = &c
	return r, nil
}

// commit is progress with the commit of an item's transaction, which keeps the claim: the item is recorded though the
// lease may have ended meanwhile, but then nothing is renewed or started.
func (r record) commit(now time.Time, p store.ProgressParams) (record, error) {
	if r.holds(p.Fenced) && !r.live(now, p.Fenced) {
		return r.finish(p), nil
	}
	return r.progress(now, p)
}

// finish returns r with an item's outcome.
func (r record) finish(p store.ProgressParams) record {
	c := *r.claim
	c.items = make(map[string][]byte, len(r.claim.items)+1)
	maps.Copy(c.items, r.claim.items)
	if p.Done != "" && c.items[p.Done] == nil {
		c.items[p.Done] = clone(p.Outcome)
	}
	r.claim = &c
	return r
}

// complete returns r with the claim's outcomes, ended.
func (r record) complete(now time.Time, p store.CompleteParams) (record, error) {
	if !r.holds(p.Fenced) {
		return r, store.ErrFenced
	}
	c := *r.claim
	c.completed, c.settled, c.outcomes, c.unsettled = true, now, clone(p.Outcomes), p.Unsettled
	r.claim = &c
	return r, nil
}

// standing tells r to a caller, who gets copies.
func (r record) standing(now time.Time, content bool) (s store.Standing) {
	if p := r.proposal; p != nil {
		s.Proposal = &store.Proposal{Digest: p.digest, Expired: p.expired(now)}
		if content {
			s.Proposal.Content = bytes.Clone(p.content)
		}
	}
	if r.claim != nil {
		s.Claim = r.claim.standing(now, content)
	}
	return s
}

func (c *claim) standing(now time.Time, content bool) *store.Claim {
	s := &store.Claim{
		Digest:    c.digest,
		Attempt:   c.attempt,
		Fence:     c.fence,
		Mode:      c.mode,
		LeaseOver: !now.Before(c.leaseEnds),
		Completed: c.completed,
		Unsettled: c.unsettled,
		Outcomes:  bytes.Clone(c.outcomes),
	}
	if content {
		s.Content = bytes.Clone(c.content)
		s.Observations = copies(c.observations)
	}
	if !c.completed {
		s.Items = make(map[string][]byte, len(c.items))
		for id, outcome := range c.items {
			s.Items[id] = bytes.Clone(outcome)
		}
	}
	return s
}

// clone copies b. It never returns nil: nil says that there is nothing.
func clone(b []byte) []byte { return append([]byte{}, b...) }
