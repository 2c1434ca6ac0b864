package memstore

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/confirmexec/confirmexec/store"
)

// seize returns r as the claim of another attempt, if nobody completed it and its lease is over.
func (r record) seize(now time.Time, p store.SeizeParams) record {
	if r.claim == nil || r.claim.completed || now.Before(r.claim.leaseEnds) {
		return r
	}
	c := *r.claim
	c.fence++
	c.attempt, c.leaseEnds = p.Attempt, now.Add(p.Lease)
	r.claim = &c
	return r
}

// settle returns r with other outcomes, if those that it has are unsettled.
func (r record) settle(now time.Time, p store.CompleteParams) (record, error) {
	if r.claim == nil || !r.claim.unsettled || r.claim.attempt != p.Attempt || r.claim.fence != p.Fence {
		return r, store.ErrFenced
	}
	c := *r.claim
	c.fence++
	c.settled, c.outcomes, c.unsettled = now, clone(p.Outcomes), p.Unsettled
	r.claim = &c
	return r, nil
}

// observe returns r with an observation, unless it has one of the same item and attempt.
func (r record) observe(p store.ObserveParams) (record, error) {
	if r.claim == nil {
		return r, store.ErrFenced
	}
	o := store.Observation{Item: p.Item, Attempt: p.Attempt, Outcome: clone(p.Outcome)}
	at, known := slices.BinarySearchFunc(r.claim.observations, o, byItem)
	if known {
		return r, nil
	}
	c := *r.claim
	c.observations = slices.Insert(slices.Clone(c.observations), at, o)
	r.claim = &c
	return r, nil
}

func byItem(a, b store.Observation) int {
	return cmp.Or(cmp.Compare(a.Item, b.Item), bytes.Compare(a.Attempt[:], b.Attempt[:]))
}

// needsSomebody tells whether r is an operation that does not settle by itself.
func (r record) needsSomebody(now time.Time) bool {
	c := r.claim
	return c != nil && (!c.completed && !now.Before(c.leaseEnds) || c.unsettled || len(c.observations) > 0)
}

// purge returns r without its payloads, if it was done with by then; lost tells whether it had any.
func (r record) purge(then time.Time) (after record, lost bool) {
	if !r.doneBy(then) {
		return r, false
	}
	if r.proposal != nil && r.proposal.content != nil {
		p := *r.proposal
		p.content, lost = nil, true
		r.proposal = &p
	}
	if r.claim != nil && (r.claim.outcomes != nil || r.claim.content != nil) {
		c := *r.claim
		c.outcomes, c.content, c.items, lost = nil, nil, nil, true
		r.claim = &c
	}
	return r, lost
}

// doneBy tells whether nobody has needed r's payloads since then: its operation was settled, or its proposal, which was
// never claimed, had expired.
func (r record) doneBy(then time.Time) bool {
	if c := r.claim; c != nil {
		return c.completed && !c.unsettled && c.mode != store.ModeIdentity && len(c.observations) == 0 && !c.settled.After(then)
	}
	return r.proposal != nil && r.proposal.expired(then)
}

// copies returns a copy that shares no memory with all.
func copies(all []store.Observation) []store.Observation {
	all = slices.Clone(all)
	for i := range all {
		all[i].Outcome = clone(all[i].Outcome)
	}
	return all
}
