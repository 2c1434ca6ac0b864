package storetest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/store"
)

func firstRun[TTx any](k *kit[TTx]) {
	empty := func(c store.Claims, p store.LookupParams) {
		k.Helper()
		s, err := c.Lookup(k.ctx, p)
		k.ok(err, "a lookup in an empty database")
		k.rule(s.Proposal == nil && s.Claim == nil, "a key that nothing is known of stands empty", s)
	}
	for _, barrier := range []bool{false, true} {
		for _, content := range []bool{false, true} {
			empty(k.own, store.LookupParams{ID: k.id, Barrier: barrier, Content: content})
		}
	}
	x := k.begin()
	empty(x.in, store.LookupParams{ID: k.id})
	empty(x.in, store.LookupParams{ID: k.id, Barrier: true, Content: true})
	x.commit()
	k.claimed()
}

func proposeOnce[TTx any](k *kit[TTx]) {
	p := proposal(k.id)
	p.Content = everyByte(1000)
	k.ok(k.own.Propose(k.ctx, p), "a first proposal")
	s := k.lookup()
	k.rule(s.Proposal != nil && s.Proposal.Digest == p.Digest, "a proposal keeps its digest", s)
	k.rule(!s.Proposal.Expired, "a fresh proposal has not expired", s)
	k.rule(bytes.Equal(s.Proposal.Content, p.Content), "a proposal's content comes back byte for byte", s)
	k.rule(s.Claim == nil, "a proposal is not a claim of the operation", s)
}

// everyByte is n bytes with every value in them, so that it is neither UTF-8 nor free of NUL.
func everyByte(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func proposeTwice[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	before := k.lookup()
	k.refused(k.own.Propose(k.ctx, proposal(k.id)), store.ErrDuplicate,
		"a second proposal is ErrDuplicate, also with the same content")
	other := store.ProposeParams{ID: k.id, Digest: digestOf("b"), Content: []byte("other"), Expiry: short}
	k.refused(k.own.Propose(k.ctx, other), store.ErrDuplicate, "a second proposal is ErrDuplicate")
	k.Advance(past)
	k.unchanged(before, "a second proposal changes nothing of the first: not its digest, content or expiry")

	f := k.claim(k.own, attempt(k.id))
	k.ok(k.own.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte("x")}), "a completion")
	k.refused(k.own.Propose(k.ctx, other), store.ErrDuplicate, "a key keeps its proposal after its completion")
}

func proposeConcurrently[TTx any](k *kit[TTx]) {
	answers := race(10, func(i int) (store.Standing, error) {
		p := proposal(k.id)
		p.Digest = digestOf(fmt.Sprint(i))
		return store.Standing{}, k.own.Propose(k.ctx, p)
	})
	winner := -1
	for i, a := range answers {
		if a.err == nil {
			k.rule(winner < 0, "one of many concurrent proposals is recorded", "two")
			winner = i
			continue
		}
		k.rule(errors.Is(a.err, store.ErrDuplicate), "concurrent proposals that lose are ErrDuplicate", a.err)
	}
	k.rule(winner >= 0, "one of many concurrent proposals is recorded", "none")
	s := k.lookup()
	k.rule(s.Proposal != nil && s.Proposal.Digest == digestOf(fmt.Sprint(winner)),
		"the proposal that won is the one that stands", s)
}

func proposalExpires[TTx any](k *kit[TTx]) {
	p := proposal(k.id)
	p.Expiry = short
	k.ok(k.own.Propose(k.ctx, p), "a first proposal")
	k.Advance(past)
	s := k.lookup()
	k.rule(s.Proposal != nil && s.Proposal.Expired, "a proposal expires on the database's clock", s)
	k.rule(bytes.Equal(s.Proposal.Content, p.Content), "an expired proposal may still be read", s)
}
