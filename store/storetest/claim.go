package storetest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/confirmexec/confirmexec/store"
)

func claimWins[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a first claim")
	k.rule(won(s, p), "the first claim of a proposed key wins", s)
	c := s.Claim
	k.rule(c.Digest == p.Digest && c.Mode == p.Mode, "a claim keeps its digest and mode", s)
	k.rule(c.Fence > 0, "a claim's fence is never zero", s)
	k.rule(!c.Completed && !c.LeaseOver && c.Outcomes == nil, "a fresh claim is within its lease and not completed", s)
	k.rule(len(c.Items) == 0, "a claim without a first item has no item records", s)
	k.rule(s.Proposal != nil && s.Proposal.Digest == p.Digest && !s.Proposal.Expired,
		"a claim's standing tells the proposal too", s)
	k.rule(show(k.lookupPlain()) == show(s), "a lookup after a claim tells what the claim told", k.lookupPlain(), s)
}

// lookupPlain reads the kit's key without content.
func (k *kit[TTx]) lookupPlain() store.Standing {
	k.Helper()
	s, err := k.own.Lookup(k.ctx, store.LookupParams{ID: k.id})
	k.ok(err, "a lookup")
	return s
}

func claimLoses[TTx any](k *kit[TTx]) {
	f := k.claimed()
	before := k.lookup()
	p := attempt(k.id)
	p.Mode, p.FirstItem, p.Lease = store.ModeExternal, "intruder", short
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a claim that loses")
	k.rule(s.Claim != nil && s.Claim.Attempt == f.Attempt && s.Claim.Fence == f.Fence,
		"a claim that loses sees the one that won", s)
	k.unchanged(before, "a claim that loses changes nothing")

	p = attempt(k.id)
	p.Outcomes, p.AcceptUnminted = []byte("cancelled"), true
	s, err = k.own.Claim(k.ctx, p)
	k.ok(err, "a claim with outcomes that loses")
	k.rule(!won(s, p) && !s.Claim.Completed, "a claim with outcomes completes only the claim that it makes itself", s)
	k.unchanged(before, "a claim with outcomes that loses changes nothing")
}

func claimRepeated[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	p.FirstItem = "i1"
	f := k.claim(k.own, p)
	k.ok(k.own.Progress(k.ctx, store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("x"), Lease: long}), "progress")
	before := k.lookup()
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a claim that is sent again")
	k.rule(won(s, p), "the attempt that holds the claim is told so when it asks again", s)
	k.unchanged(before, "a claim that is sent again changes nothing")
}

const crowd = 25

// oneWinner fails the test unless exactly one of the attempts won and every answer tells the same claim.
func (k *kit[TTx]) oneWinner(attempts []store.ClaimParams, answers []answer) {
	k.Helper()
	winners := 0
	stands := k.lookup().Claim
	k.rule(stands != nil, "one of many concurrent claims wins", "none")
	for i, a := range answers {
		k.ok(a.err, "each of many concurrent claims")
		k.rule(a.standing.Claim != nil, "a claim that returns tells who holds the key", a.standing)
		k.rule(a.standing.Claim.Attempt == stands.Attempt, "every concurrent claim sees the same winner", a.standing)
		if won(a.standing, attempts[i]) {
			winners++
		}
	}
	k.rule(winners == 1, "exactly one of many concurrent claims wins", winners)
}

func claimConcurrently[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	attempts := k.crowd()
	k.oneWinner(attempts, race(crowd, func(i int) (store.Standing, error) {
		return k.own.Claim(k.ctx, attempts[i])
	}))
}

// claimWaits claims a key while a transaction's claim of it is under way, and ends that transaction in either way.
func claimWaits[TTx any](k *kit[TTx]) {
	for _, commits := range []bool{true, false} {
		k.id = newID()
		k.propose(k.id)
		x := k.begin()
		first, second := attempt(k.id), attempt(k.id)
		k.claim(x.in, first)
		done := async(func() (store.Standing, error) { return k.own.Claim(k.ctx, second) })
		select {
		case a := <-done:
			k.rule(false, "a claim waits for one of the same key that is under way", a.standing, a.err)
		case <-time.After(patience):
		}
		if commits {
			x.commit()
		} else {
			x.rollback()
		}
		a := <-done
		k.ok(a.err, "a claim that has waited")
		if commits {
			k.rule(won(a.standing, first), "a claim that has waited sees who won meanwhile", a.standing)
		} else {
			k.rule(won(a.standing, second), "a claim wins when the one that it waited for is rolled back", a.standing)
		}
	}
}

func claimInTransactions[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	attempts := k.crowd()
	k.oneWinner(attempts, race(crowd, func(i int) (store.Standing, error) {
		tx, err := k.Begin(k.ctx)
		if err != nil {
			return store.Standing{}, err
		}
		s, err := k.Store.In(tx).Claim(k.ctx, attempts[i])
		if err != nil {
			_ = k.Rollback(k.ctx, tx)
			return s, err
		}
		if won(s, attempts[i]) {
			err = k.Effect(k.ctx, tx, "effect")
		}
		if err != nil {
			_ = k.Rollback(k.ctx, tx)
			return s, err
		}
		return s, k.Commit(k.ctx, tx)
	}))
	k.count("effect", 1, "many concurrent transactions leave one effect")
}

func (k *kit[TTx]) crowd() []store.ClaimParams {
	all := make([]store.ClaimParams, crowd)
	for i := range all {
		all[i] = attempt(k.id)
	}
	return all
}

// notClaimed makes the claim p, which must be refused without a trace.
func (k *kit[TTx]) notClaimed(p store.ClaimParams, rule string) store.Standing {
	k.Helper()
	before := k.lookup()
	p.FirstItem = "i1"
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a claim that is refused is told by its standing, not by an error: it")
	k.rule(s.Claim == nil, rule, s)
	k.unchanged(before, rule+", and nothing is written")
	return s
}

func claimUnminted[TTx any](k *kit[TTx]) {
	s := k.notClaimed(attempt(k.id), "a key without a proposal is not claimed")
	k.rule(s.Proposal == nil, "a refused claim makes no proposal", s)
	p := attempt(k.id)
	p.Outcomes = []byte("cancelled")
	k.notClaimed(p, "a key without a proposal is not claimed, outcomes or not")
	k.propose(k.id)
	k.claim(k.own, attempt(k.id))
}

func claimOtherDigest[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	p.Digest = digestOf("b")
	s := k.notClaimed(p, "a claim whose digest is not the proposal's is refused")
	k.rule(s.Proposal != nil && s.Proposal.Digest == digestOf("a"), "a refused claim tells the proposal's digest", s)
	p.Outcomes = []byte("cancelled")
	k.notClaimed(p, "a claim whose digest is not the proposal's is refused, outcomes or not")

	f := k.claim(k.own, attempt(k.id))
	p.Outcomes = nil
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a claim that loses")
	k.rule(s.Claim != nil && s.Claim.Attempt == f.Attempt && s.Claim.Digest == digestOf("a"),
		"a claim with another digest sees the digest of the claim that stands", s)
}

// expired proposes the kit's key and lets the proposal expire.
func (k *kit[TTx]) expired() {
	k.Helper()
	p := proposal(k.id)
	p.Expiry = short
	k.ok(k.own.Propose(k.ctx, p), "a first proposal")
	k.Advance(past)
}

func claimExpired[TTx any](k *kit[TTx]) {
	k.expired()
	s := k.notClaimed(attempt(k.id), "a key whose proposal has expired is not claimed")
	k.rule(s.Proposal != nil && s.Proposal.Expired, "a refused claim tells that the proposal has expired", s)
}

func acceptUnminted[TTx any](k *kit[TTx]) {
	p := attempt(k.id)
	p.AcceptUnminted, p.Content = true, everyByte(600)
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a claim with AcceptUnminted")
	k.rule(won(s, p) && s.Proposal == nil, "AcceptUnminted takes a key without a proposal", s)
	k.rule(s.Claim.Content == nil, "a claim's answer holds no content: nobody asked for it", s)
	s = k.lookup()
	k.rule(bytes.Equal(s.Claim.Content, p.Content), "the content of an unminted key is stored with its claim", s)

	k.id = newID()
	k.propose(k.id)
	p = attempt(k.id)
	p.AcceptUnminted, p.Content = true, []byte("again")
	k.claim(k.own, p)
	s = k.lookup()
	k.rule(len(s.Claim.Content) == 0 && string(s.Proposal.Content) == "content",
		"a proposed key keeps its content once, in the proposal", s)
}

func acceptUnmintedRefuses[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	p.AcceptUnminted, p.Content, p.Digest = true, []byte("c"), digestOf("b")
	k.notClaimed(p, "AcceptUnminted does not take a key whose proposal has another digest")

	k.id = newID()
	k.expired()
	p = attempt(k.id)
	p.AcceptUnminted, p.Content = true, []byte("c")
	k.notClaimed(p, "AcceptUnminted does not take a key whose proposal has expired")
}

func claimCompleted[TTx any](k *kit[TTx]) {
	for name, outcomes := range map[string][]byte{"bytes": []byte("cancelled"), "empty": {}} {
		k.id = newID()
		k.propose(k.id)
		p := attempt(k.id)
		p.Mode, p.Outcomes = store.ModeCancel, outcomes
		f := k.claim(k.own, p)
		s := k.lookup()
		k.rule(s.Claim.Completed && bytes.Equal(s.Claim.Outcomes, outcomes),
			"a claim with outcomes is completed as it is made", name, s)
		err := k.own.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte("late")})
		k.refused(err, store.ErrFenced, "a claim that was completed as it was made is completed")
		k.unchanged(s, "a claim that was completed as it was made does not change")
		late := attempt(k.id)
		s, err = k.own.Claim(k.ctx, late)
		k.ok(err, "a claim that loses")
		k.rule(!won(s, late) && s.Claim.Completed && bytes.Equal(s.Claim.Outcomes, outcomes),
			"a claim that loses sees the stored outcomes", s)
	}
}

func claimCompletedPastExpiry[TTx any](k *kit[TTx]) {
	k.expired()
	p := attempt(k.id)
	p.Mode, p.Outcomes = store.ModeCancel, []byte("cancelled")
	k.claim(k.own, p)
	s := k.lookup()
	k.rule(s.Claim.Completed && string(s.Claim.Outcomes) == "cancelled",
		"a claim with outcomes is made whatever the proposal's expiry", s)

	k.id = newID()
	p = attempt(k.id)
	p.AcceptUnminted, p.Outcomes = true, []byte("cancelled")
	k.claim(k.own, p)
	k.rule(k.lookup().Claim.Completed, "AcceptUnminted and outcomes go together", k.lookup())
}

func firstItem[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	p.FirstItem = "i1"
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a first claim")
	k.rule(won(s, p) && items(s) == "i1 started", "the first item is recorded as started with the claim", s)
	s = k.lookup()
	k.rule(items(s) == "i1 started", "a started item is told with a nil outcome", s)
}

func leaseOver[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	p.Lease, p.FirstItem = short, "i1"
	f := k.claim(k.own, p)
	k.Advance(past)
	s := k.lookup()
	k.rule(s.Claim != nil && s.Claim.LeaseOver && !s.Claim.Completed, "a lease ends on the database's clock", s)

	s, err := k.own.Claim(k.ctx, attempt(k.id))
	k.ok(err, "a claim that loses")
	k.rule(s.Claim.Attempt == f.Attempt && s.Claim.Fence == f.Fence && s.Claim.LeaseOver,
		"the end of a lease frees no key: the first claim stands", s)
	k.rule(items(s) == "i1 started", "the items of a claim whose lease is over are told", s)
	k.ok(k.own.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte("late")}),
		"completion after the lease, while the fence stands,")
}

func leaseIsPrecise[TTx any](k *kit[TTx]) {
	const lease = 400 * time.Millisecond
	k.propose(k.id)
	p := attempt(k.id)
	p.Lease = lease
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a first claim")
	k.rule(!s.Claim.LeaseOver, "a lease of less than a second is not over at once", s)
	k.Advance(lease)
	k.rule(k.lookup().Claim.LeaseOver, "a lease of less than a second is over after less than a second", k.lookup())
}

func modes[TTx any](k *kit[TTx]) {
	for _, mode := range []store.Mode{
		store.ModeExternal, store.ModeExternalProgress, store.ModePerItem, store.ModeAtomic, store.ModeCancel,
	} {
		k.id = newID()
		k.propose(k.id)
		p := attempt(k.id)
		p.Mode = mode
		k.claim(k.own, p)
		k.rule(k.lookup().Claim.Mode == mode, "a claim keeps its mode", mode, k.lookup())
	}
}

func claimCancelled[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	p := attempt(k.id)
	_, err := k.own.Claim(ctx, p)
	k.rule(errors.Is(err, context.Canceled), "a claim with a cancelled context is that context's error", err)
	k.rule(!tooLong(err), "a claim that waited for nobody is no lock timeout", err)
	k.rule(k.lookup().Claim == nil, "a claim with a cancelled context writes nothing", k.lookup())
}
