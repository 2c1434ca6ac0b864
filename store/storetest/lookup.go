package storetest

import (
	"time"

	"github.com/confirmexec/confirmexec/store"
)

// patience is how long a call that must wait is watched, to see that it does not return.
const patience = 150 * time.Millisecond

func lookupContent[TTx any](k *kit[TTx]) {
	k.claimed()
	s := k.lookupPlain()
	k.rule(s.Proposal != nil && s.Proposal.Content == nil, "a proposal's content is told only when it is asked for", s)
	k.rule(string(k.lookup().Proposal.Content) == "content",
		"a proposal's content is told after its claim too", k.lookup())

	k.id = newID()
	p := attempt(k.id)
	p.AcceptUnminted, p.Content = true, []byte("mine")
	k.claim(k.own, p)
	s = k.lookupPlain()
	k.rule(s.Claim.Content == nil, "a claim's content is told only when it is asked for", s)
	s, err := k.own.Lookup(k.ctx, store.LookupParams{ID: k.id, Barrier: true, Content: true})
	k.ok(err, "a lookup behind the barrier")
	k.rule(string(s.Claim.Content) == "mine", "the barrier tells content too", s)
}

func lookupCopies[TTx any](k *kit[TTx]) {
	p := proposal(k.id)
	k.ok(k.own.Propose(k.ctx, p), "a first proposal")
	c := attempt(k.id)
	c.FirstItem = "i1"
	f := k.claim(k.own, c)
	outcome := []byte("outcome")
	k.ok(k.own.Progress(k.ctx, store.ProgressParams{Fenced: f, Done: "i1", Outcome: outcome, Lease: long}), "progress")

	spoil(p.Content, outcome)
	s := k.lookup()
	spoil(s.Proposal.Content, s.Claim.Items["i1"])
	delete(s.Claim.Items, "i1")
	s = k.lookup()
	k.rule(string(s.Proposal.Content) == "content" && items(s) == `i1="outcome"`,
		"a store shares no memory with its callers", s)

	outcomes := []byte("outcomes")
	k.ok(k.own.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: outcomes}), "a completion")
	spoil(outcomes, k.lookup().Claim.Outcomes)
	k.rule(string(k.lookup().Claim.Outcomes) == "outcomes", "a store shares no memory with its callers", k.lookup())
}

func spoil(all ...[]byte) {
	for _, b := range all {
		for i := range b {
			b[i] = '!'
		}
	}
}

func lookupDoesNotWait[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	x := k.begin()
	k.claim(x.in, attempt(k.id))
	s := k.lookupPlain()
	k.rule(s.Claim == nil && s.Proposal != nil, "a lookup without the barrier sees what is committed and does not wait", s)
	x.commit()
	k.rule(k.lookupPlain().Claim != nil, "a lookup sees a claim once it is committed", k.lookupPlain())
}

func barrierLeavesNoTrace[TTx any](k *kit[TTx]) {
	p := store.LookupParams{ID: k.id, Barrier: true, Content: true}
	for range 2 {
		s, err := k.own.Lookup(k.ctx, p)
		k.ok(err, "a lookup behind the barrier")
		k.rule(s.Proposal == nil && s.Claim == nil, "the barrier shows no trace of itself", s)
	}
	k.rule(k.lookup().Claim == nil, "the barrier leaves no claim", k.lookup())
	k.propose(k.id)
	before := k.lookup()
	s, err := k.own.Lookup(k.ctx, p)
	k.ok(err, "a lookup behind the barrier")
	k.rule(show(s) == show(before), "the barrier tells what a lookup tells", s, before)
	k.unchanged(before, "the barrier changes nothing")

	f := k.claim(k.own, attempt(k.id))
	s, err = k.own.Lookup(k.ctx, p)
	k.ok(err, "a lookup behind the barrier")
	k.rule(s.Claim != nil && s.Claim.Attempt == f.Attempt, "the barrier tells the claim that stands", s)
	k.ok(k.own.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte("x")}), "a completion after the barrier")
}

// behindBarrier starts a lookup behind the barrier and sees that it waits.
func (k *kit[TTx]) behindBarrier() <-chan answer {
	k.Helper()
	return k.waits("the barrier waits for a claim of the key that is under way", func() (store.Standing, error) {
		return k.own.Lookup(k.ctx, store.LookupParams{ID: k.id, Barrier: true})
	})
}

// waits starts call and sees that it does not return.
func (k *kit[TTx]) waits(rule string, call func() (store.Standing, error)) <-chan answer {
	k.Helper()
	pending := async(call)
	select {
	case a := <-pending:
		k.rule(false, rule, a.standing, a.err)
	case <-time.After(patience):
	}
	return pending
}

func barrierSeesCommit[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	x := k.begin()
	f := k.claim(x.in, attempt(k.id))
	done := k.behindBarrier()
	x.commit()
	a := <-done
	k.ok(a.err, "a lookup behind the barrier")
	k.rule(a.standing.Claim != nil && a.standing.Claim.Attempt == f.Attempt,
		"the barrier sees the claim that it waited for", a.standing)
}

func barrierSeesRollback[TTx any](k *kit[TTx]) {
	x := k.begin()
	p := attempt(k.id)
	p.AcceptUnminted = true
	k.claim(x.in, p)
	done := k.behindBarrier()
	x.rollback()
	a := <-done
	k.ok(a.err, "a lookup behind the barrier")
	k.rule(a.standing.Claim == nil, "the barrier does not see a claim that was rolled back", a.standing)
	k.rule(k.lookup().Claim == nil, "the barrier leaves no claim", k.lookup())
}

func lockTimeout[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	x := k.begin()
	k.claim(x.in, attempt(k.id))
	p := attempt(k.id)
	lost := async(func() (store.Standing, error) { return k.own.Claim(k.ctx, p) })
	blind := async(func() (store.Standing, error) {
		return k.own.Lookup(k.ctx, store.LookupParams{ID: k.id, Barrier: true})
	})
	k.waited((<-lost).err, "a claim waits no longer than the lock timeout, and says so")
	k.waited((<-blind).err, "the barrier waits no longer than the lock timeout, and says so")
	x.rollback()
	k.rule(k.lookup().Claim == nil, "a claim that ran into the lock timeout wrote nothing", k.lookup())
	k.claim(k.own, p)
}
