package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

// purge purges the kit's tenant and fails the test unless n keys lost something.
func (k *kit[TTx]) purge(retention time.Duration, n int, rule string) {
	k.Helper()
	k.purgeSome(k.id.Tenant, retention, 100, n, rule)
}

func (k *kit[TTx]) purgeSome(tenant string, retention time.Duration, limit, n int, rule string) {
	k.Helper()
	got, err := k.keep().Purge(k.ctx, store.PurgeParams{Tenant: tenant, Retention: retention, Limit: limit})
	k.ok(err, "Purge")
	k.rule(got == n, rule, got, n)
}

// settled proposes, claims and completes the kit's key, with item records.
func (k *kit[TTx]) settled() store.Fenced {
	k.Helper()
	f := k.started()
	k.progress(store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("secret"), Next: "i2"})
	k.complete(f, []byte("outcomes"))
	return f
}

// purged fails the test unless the kit's key has lost its payloads, and no more.
func (k *kit[TTx]) purged() {
	k.Helper()
	s := k.lookup()
	k.rule(s.Claim != nil && s.Claim.Completed && !s.Claim.Unsettled && s.Claim.Digest == digestOf("a"),
		"a purged key keeps its claim, its digest and its completion", s)
	k.rule(s.Claim.Outcomes == nil && s.Claim.Content == nil, "a purged key tells neither outcomes nor content", s)
	k.rule(len(s.Claim.Items) == 0, "a purged key tells no items", s)
	k.rule(s.Proposal == nil || s.Proposal.Content == nil && s.Proposal.Digest == digestOf("a"),
		"a purged key keeps its proposal, with its digest and without its content", s)
}

func purgeForgets[TTx any](k *kit[TTx]) {
	k.settled()
	k.settledWith([]byte{})
	k.purge(long, 0, "Purge forgets nothing before its time")
	k.Advance(past)
	k.purge(short, 2, "Purge tells how many keys lost something")
	k.purged()
	k.purge(0, 0, "a key that has nothing to lose is not counted")
	k.purged()
	k.rule(len(k.list(k.id.Tenant, 10)) == 0, "a purged key needs nobody", k.list(k.id.Tenant, 10))
}

// settledWith gives the kit a fresh key in its tenant that is completed with outcomes.
func (k *kit[TTx]) settledWith(outcomes []byte) {
	k.Helper()
	k.another()
	k.complete(k.claimed(), outcomes)
	s := k.lookup()
	k.rule(s.Claim.Outcomes != nil, "outcomes are told until they are purged, also empty ones", s)
}

func purgeReopensNothing[TTx any](k *kit[TTx]) {
	f := k.settled()
	k.Advance(past)
	k.purge(short, 1, "Purge forgets a settled key")
	before := k.lookup()
	again, other, cancel := attempt(k.id), attempt(k.id), attempt(k.id)
	other.Digest, cancel.Outcomes = digestOf("b"), []byte("cancelled")
	for name, p := range map[string]store.ClaimParams{
		"the same content": again, "other content": other, "outcomes": cancel,
	} {
		p.AcceptUnminted, p.FirstItem, p.Content = true, "i3", []byte("content")
		s, err := k.own.Claim(k.ctx, p)
		k.ok(err, "a claim that loses")
		k.rule(!won(s, p) && s.Claim != nil && s.Claim.Completed, "a completion outlives its purge", s)
		k.rule(s.Claim.Outcomes == nil && s.Claim.Digest == digestOf("a"),
			"a claim of a purged key, with "+name+", loses to what is completed", s)
		k.unchanged(before, "a claim of a purged key changes nothing")
	}
	k.refused(k.own.Propose(k.ctx, proposal(k.id)), store.ErrDuplicate, "a purged key keeps its proposal")
	k.fencedOut(f, "the attempt of a purged key")
	k.notSettled(f, "Settle of a purged key")
	k.notSeized("Seize takes no purged key")
	s, err := k.own.Lookup(k.ctx, store.LookupParams{ID: k.id, Barrier: true, AwaitWrites: true, Content: true})
	k.ok(err, "a lookup behind the barrier")
	k.rule(show(s) == show(before), "the barrier tells of a purged key what a lookup tells", s, before)
}

func purgeUnminted[TTx any](k *kit[TTx]) {
	p := attempt(k.id)
	p.AcceptUnminted, p.Content = true, []byte("mine")
	k.complete(k.claim(k.own, p), []byte("outcomes"))
	s := k.lookup()
	k.rule(string(s.Claim.Content) == "mine", "a completed claim keeps its content until it is purged", s)
	k.Advance(past)
	k.purge(short, 1, "Purge forgets a settled key")
	k.purged()

	k.another()
	k.propose(k.id)
	p = attempt(k.id)
	p.Mode, p.Outcomes = store.ModeCancel, []byte("cancelled")
	k.claim(k.own, p)
	k.Advance(past)
	k.purge(short, 1, "Purge forgets a key that was completed as it was claimed")
	k.purged()
}

func purgeLeavesAlone[TTx any](k *kit[TTx]) {
	kept := map[uuid.UUID]store.Standing{}
	keep := func() {
		kept[k.id.Key] = k.lookup()
		k.another()
	}
	k.propose(k.id)
	keep()
	k.started()
	keep()
	k.abandoned()
	keep()
	k.unsettled()
	keep()
	k.observe(k.claimed(), "i1", "x")
	keep()
	f := k.settled()
	k.observe(f, "i1", "x")
	keep()
	k.Advance(past)
	k.purge(short, 0, "Purge forgets nothing of what is proposed, under way, unsettled or observed")
	for key, before := range kept {
		k.id.Key = key
		k.unchanged(before, "Purge changes nothing of what is proposed, under way, unsettled or observed")
	}
}

func purgeProposals[TTx any](k *kit[TTx]) {
	k.expired()
	k.purge(long, 0, "Purge keeps what expired within the retention")
	k.rule(string(k.lookup().Proposal.Content) == "content", "an expired proposal may still be read", k.lookup())
	k.Advance(past)
	k.purge(short, 1, "Purge forgets a proposal that expired and was never claimed")
	s := k.lookup()
	k.rule(s.Proposal != nil && s.Proposal.Digest == digestOf("a") && s.Proposal.Expired && s.Proposal.Content == nil,
		"a purged proposal keeps its digest and its expiry", s)
	k.purge(short, 0, "a proposal that has nothing to lose is not counted")
	k.notClaimed(attempt(k.id), "a key whose proposal was purged is not claimed")
	p := attempt(k.id)
	p.AcceptUnminted, p.Content = true, []byte("again")
	k.notClaimed(p, "AcceptUnminted does not take a key whose proposal was purged")
	k.refused(k.own.Propose(k.ctx, proposal(k.id)), store.ErrDuplicate, "a purged proposal stays the key's proposal")

	k.another()
	claimed := proposal(k.id)
	claimed.Expiry = brief
	k.ok(k.own.Propose(k.ctx, claimed), "a first proposal")
	k.claim(k.own, attempt(k.id))
	k.Advance(brief + past)
	before := k.lookup()
	k.purge(short, 0, "Purge keeps a proposal whose operation is under way, expired or not")
	k.unchanged(before, "Purge keeps a proposal whose operation is under way, expired or not")
}

func purgeRetention[TTx any](k *kit[TTx]) {
	f := k.unsettled()
	k.Advance(brief)
	k.settles(f, []byte("found"), false)
	before := k.lookup()
	k.purge(brief, 0, "retention counts from when the operation was settled, not from its first completion")
	k.unchanged(before, "Purge forgets nothing before its time")
	k.Advance(brief)
	k.purge(brief, 1, "Purge forgets what has been settled for longer than the retention")
	k.purged()
}

func purgeLimit[TTx any](k *kit[TTx]) {
	var settled []uuid.UUID
	for range 4 {
		settled = append(settled, k.another())
		k.settled()
	}
	k.another()
	k.expired()
	k.Advance(past)
	for _, n := range []int{2, 2, 1, 0} {
		k.purgeSome(k.id.Tenant, short, 2, n, "Purge forgets no more keys than its limit, and each of them once")
	}
	k.rule(k.lookup().Proposal.Content == nil, "Purge forgets everything in the end", k.lookup())
	for _, key := range settled {
		k.id.Key = key
		k.purged()
	}
}

func purgeTenants[TTx any](k *kit[TTx]) {
	k.settled()
	before := k.lookup()
	mine, other := k.id, k.foreign()
	k.Advance(past)
	k.purgeSome(other.Tenant, short, 100, 0, "Purge finds nothing of another tenant")
	k.id = other
	k.settled()
	k.Advance(past)
	k.purge(short, 1, "Purge forgets a settled key of its tenant")
	k.purged()
	k.id = mine
	k.unchanged(before, "Purge changes nothing of another tenant")
}

func purgeKeepsIdentities[TTx any](k *kit[TTx]) {
	p := attempt(k.id)
	p.Mode, p.AcceptUnminted, p.Content, p.Outcomes = store.ModeIdentity, true, []byte("names"), []byte("names")
	_, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a claim of an identity")
	k.Advance(past)
	k.purge(short, 0, "Purge leaves an identity alone: it leads to an operation that may be open still")
	s := k.lookup()
	k.rule(string(s.Claim.Outcomes) == "names", "an identity's names outlive a purge", s)
}
