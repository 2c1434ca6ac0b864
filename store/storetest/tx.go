package storetest

import (
	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

func txRollback[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	x := k.begin()
	p := attempt(k.id)
	p.FirstItem = "i1"
	f := k.claim(x.in, p)
	k.ok(x.in.Progress(k.ctx, store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("x"), Lease: long}),
		"progress in a transaction")
	x.effect("effect")
	k.ok(x.in.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte("done")}), "completion in a transaction")
	x.rollback()
	k.rule(k.lookup().Claim == nil, "a rollback leaves no claim", k.lookup())
	k.count("effect", 0, "a rollback leaves no effect")
	k.claim(k.own, attempt(k.id))
	k.rule(items(k.lookup()) == "", "a rollback leaves no item", k.lookup())
}

func txCommit[TTx any](k *kit[TTx]) {
	x := k.begin()
	k.ok(x.in.Propose(k.ctx, proposal(k.id)), "a proposal in a transaction")
	p := attempt(k.id)
	p.FirstItem = "i1"
	f := k.claim(x.in, p)
	x.effect("effect")
	k.rule(k.lookup().Claim == nil, "a claim is not seen before its commit", k.lookup())
	x.commit()
	s := k.lookup()
	k.rule(s.Claim != nil && s.Claim.Attempt == f.Attempt && items(s) == "i1 started",
		"a commit leaves the claim and its item", s)
	k.count("effect", 1, "a commit leaves the effect")
	k.complete(f, []byte("done"))
}

func txSeesItself[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	x := k.begin()
	f := k.claim(x.in, attempt(k.id))
	k.ok(x.in.Progress(k.ctx, store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("x"), Next: "i2", Lease: long}),
		"progress in a transaction")
	s := k.lookupID(x.in, k.id)
	k.rule(s.Claim != nil && items(s) == `i1="x" i2 started`, "a transaction sees what it wrote", s)
	k.ok(x.in.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte("done")}), "completion in a transaction")
	s = k.lookupID(x.in, k.id)
	k.rule(s.Claim.Completed && string(s.Claim.Outcomes) == "done", "a transaction sees its completion", s)
	x.commit()
	k.rule(string(k.lookup().Claim.Outcomes) == "done", "a commit leaves the completion", k.lookup())
}

func txRefusedClaim[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	other := attempt(k.id)
	other.Digest = digestOf("b")
	unminted := attempt(store.ID{Tenant: k.id.Tenant, Key: uuid.New()})
	x := k.begin()
	for _, p := range []store.ClaimParams{other, unminted} {
		p.FirstItem = "i1"
		s, err := x.in.Claim(k.ctx, p)
		k.ok(err, "a claim that is refused, which its standing tells,")
		k.rule(s.Claim == nil, "a claim is refused in a transaction as elsewhere", s)
	}
	x.effect("effect")
	f := k.claim(x.in, attempt(k.id))
	lost := attempt(k.id)
	s, err := x.in.Claim(k.ctx, lost)
	k.ok(err, "a claim that loses")
	k.rule(!won(s, lost), "a second claim of one transaction loses", s)
	x.effect("effect")
	x.commit()
	k.count("effect", 2, "a transaction is usable after a claim was refused or lost")
	k.rule(k.lookup().Claim.Attempt == f.Attempt, "a transaction is usable after a claim was refused", k.lookup())
	k.rule(k.lookupID(k.own, unminted.ID).Claim == nil,
		"a refused claim leaves nothing to commit", k.lookupID(k.own, unminted.ID))
}

func txFencedWrite[TTx any](k *kit[TTx]) {
	f := k.started()
	before := k.lookup()
	late := f
	late.Fence++
	x := k.begin()
	p := store.ProgressParams{Fenced: late, Done: "i1", Outcome: []byte("x"), Next: "i2", Lease: short}
	err := x.in.Progress(k.ctx, p)
	k.refused(err, store.ErrFenced, "progress under another fence is ErrFenced")
	err = x.in.Complete(k.ctx, store.CompleteParams{Fenced: late, Outcomes: []byte("x")})
	k.refused(err, store.ErrFenced, "completion under another fence is ErrFenced")
	x.effect("effect")
	x.commit()
	k.count("effect", 1, "a transaction is usable after ErrFenced")
	k.unchanged(before, "a fenced write leaves nothing to commit")
}

func txDuplicateProposal[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	before := k.lookup()
	x := k.begin()
	p := proposal(k.id)
	p.Content = []byte("other")
	k.refused(x.in.Propose(k.ctx, p), store.ErrDuplicate, "a second proposal is ErrDuplicate")
	x.effect("effect")
	x.commit()
	k.count("effect", 1, "a transaction is usable after ErrDuplicate")
	k.unchanged(before, "a duplicate proposal leaves nothing to commit")
}

func txBarrier[TTx any](k *kit[TTx]) {
	x := k.begin()
	p := store.LookupParams{ID: k.id, Barrier: true, Content: true}
	s, err := x.in.Lookup(k.ctx, p)
	k.ok(err, "a lookup behind the barrier, in a transaction")
	k.rule(s.Claim == nil && s.Proposal == nil, "the barrier shows no trace of itself", s)
	c := attempt(k.id)
	c.AcceptUnminted = true
	f := k.claim(x.in, c)
	s, err = x.in.Lookup(k.ctx, p)
	k.ok(err, "a lookup behind the barrier, in a transaction")
	k.rule(s.Claim != nil && s.Claim.Attempt == f.Attempt, "the barrier sees the transaction's own claim", s)
	x.effect("effect")
	x.commit()
	k.count("effect", 1, "a transaction is usable after the barrier")
	k.rule(k.lookup().Claim.Attempt == f.Attempt, "the barrier undoes nothing of its transaction", k.lookup())
}
