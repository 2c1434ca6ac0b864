package storetest

import (
	"github.com/confirmexec/confirmexec/store"
)

// foreign is the kit's key string in another tenant.
func (k *kit[TTx]) foreign() store.ID { return store.ID{Tenant: newID().Tenant, Key: k.id.Key} }

func tenantsAreIndependent[TTx any](k *kit[TTx]) {
	a, b := k.id, k.foreign()
	k.propose(a)
	k.ok(k.own.Propose(k.ctx, store.ProposeParams{ID: b, Digest: digestOf("b"), Content: []byte("b's"), Expiry: long}),
		"the first proposal of a key string in another tenant")
	pa, pb := attempt(a), attempt(b)
	pa.FirstItem, pb.FirstItem, pb.Digest = "i1", "i1", digestOf("b")
	fa, fb := k.claim(k.own, pa), k.claim(k.own, pb)

	k.progress(store.ProgressParams{Fenced: fa, Done: "i1", Outcome: []byte("a1"), Next: "i2"})
	sb := k.lookupID(k.own, b)
	k.rule(items(sb) == "i1 started", "an item of one tenant is not an item of another", sb)
	k.complete(fa, []byte("a done"))
	sb = k.lookupID(k.own, b)
	k.rule(!sb.Claim.Completed && string(sb.Proposal.Content) == "b's",
		"a completion in one tenant completes nothing in another", sb)
	k.complete(fb, []byte("b done"))
	k.rule(string(k.lookupID(k.own, a).Claim.Outcomes) == "a done",
		"each tenant keeps its own outcomes", k.lookupID(k.own, a))
	k.rule(string(k.lookupID(k.own, b).Claim.Outcomes) == "b done",
		"each tenant keeps its own outcomes", k.lookupID(k.own, b))
}

func tenantsSeeNothing[TTx any](k *kit[TTx]) {
	k.claimed()
	for _, barrier := range []bool{false, true} {
		s, err := k.own.Lookup(k.ctx, store.LookupParams{ID: k.foreign(), Barrier: barrier, Content: true})
		k.ok(err, "a lookup of another tenant's key")
		k.rule(s.Proposal == nil && s.Claim == nil, "another tenant's key stands as one that nothing is known of", s)
	}
}

func tenantsAreFenced[TTx any](k *kit[TTx]) {
	f := k.started()
	before := k.lookup()
	f.ID = k.foreign()
	p := store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("x"), Next: "i2", Lease: short}
	err := k.own.Progress(k.ctx, p)
	k.refused(err, store.ErrFenced, "progress under another tenant's name is ErrFenced")
	err = k.own.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte("x")})
	k.refused(err, store.ErrFenced, "completion under another tenant's name is ErrFenced")
	k.unchanged(before, "a write under another tenant's name changes nothing")
}

func tenantsDoNotShareProposals[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	k.id = k.foreign()
	s := k.notClaimed(attempt(k.id), "a proposal in one tenant lets no other claim its key")
	k.rule(s.Proposal == nil, "another tenant's proposal is not told", s)
	p := attempt(k.id)
	p.AcceptUnminted, p.Digest = true, digestOf("b")
	k.claim(k.own, p)
}
