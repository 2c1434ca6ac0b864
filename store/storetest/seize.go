package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

func seizure(id store.ID) store.SeizeParams {
	return store.SeizeParams{ID: id, Attempt: uuid.New(), Lease: long}
}

func (k *kit[TTx]) keep() store.Keeper { return k.Store.Keep() }

// seize takes the kit's key, which must succeed, and returns the fence.
func (k *kit[TTx]) seize() store.Fenced {
	k.Helper()
	p := seizure(k.id)
	s, err := k.keep().Seize(k.ctx, p)
	k.ok(err, "Seize")
	k.rule(s.Claim != nil && s.Claim.Attempt == p.Attempt, "Seize takes an uncompleted claim whose lease is over", s)
	return store.Fenced{ID: k.id, Attempt: p.Attempt, Fence: s.Claim.Fence}
}

// notSeized fails the test unless Seize of the kit's key takes nothing.
func (k *kit[TTx]) notSeized(rule string) {
	k.Helper()
	before, plain := k.lookup(), k.lookupPlain()
	p := seizure(k.id)
	s, err := k.keep().Seize(k.ctx, p)
	k.ok(err, "a Seize that takes nothing, which its standing tells,")
	k.rule(s.Claim == nil || s.Claim.Attempt != p.Attempt, rule, s)
	k.rule((s.Claim == nil) == (plain.Claim == nil) && items(s) == items(plain),
		"Seize tells how the key stands", s, plain)
	k.unchanged(before, "a Seize that takes nothing changes nothing")
}

func seizeFences[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	p.Mode, p.FirstItem = store.ModePerItem, "i1"
	old := k.claim(k.own, p)
	done1 := store.ProgressParams{Fenced: old, Done: "i1", Outcome: []byte("x"), Lease: short}
	k.ok(k.own.Progress(k.ctx, done1), "progress")
	k.Advance(past)
	f := k.seize()
	before := k.lookup()
	c := before.Claim
	k.rule(c.Fence > old.Fence && c.Attempt == f.Attempt, "Seize raises the fence and changes the attempt", before)
	k.rule(!c.LeaseOver && !c.Completed, "a seized claim is under way, within a new lease", before)
	k.rule(c.Digest == digestOf("a") && c.Mode == store.ModePerItem && items(before) == `i1="x"`,
		"a seized claim keeps its digest, its mode and its items", before)

	k.fencedOut(old, "the attempt from which the claim was seized")
	mixed := f
	mixed.Fence = old.Fence
	k.fencedOut(mixed, "the new attempt with the old fence")
	mixed = old
	mixed.Fence = f.Fence
	k.fencedOut(mixed, "the old attempt with the new fence")

	k.item(f, "effect").commit(done(f, "i2"))
	k.rule(items(k.lookup()) == `i1="x" i2="x"`, "the attempt that seized the claim holds it", k.lookup())
	k.complete(f, []byte("done"))
}

// fencedOut fails the test unless nothing can be written to the kit's key under f, in any way.
func (k *kit[TTx]) fencedOut(f store.Fenced, who string) {
	k.Helper()
	before := k.lookup()
	x := k.begin()
	late := store.ProgressParams{Fenced: f, Done: "late", Outcome: []byte("late"), Next: "later", Lease: short}
	complete := store.CompleteParams{Fenced: f, Outcomes: []byte("late")}
	k.refused(x.in.Progress(k.ctx, late), store.ErrFenced, "progress, in a transaction, by "+who+" is ErrFenced")
	k.refused(x.in.Complete(k.ctx, complete), store.ErrFenced, "completion, in a transaction, by "+who+" is ErrFenced")
	x.commit()
	k.refused(k.own.Progress(k.ctx, late), store.ErrFenced, "progress by "+who+" is ErrFenced")
	k.refused(k.own.Complete(k.ctx, complete), store.ErrFenced, "completion by "+who+" is ErrFenced")
	_, _, err := k.Store.Begin(k.ctx, store.Opening{ID: f.ID, Hold: &f})
	k.refused(err, store.ErrFenced, "an item's transaction by "+who+" is ErrFenced")
	k.unchanged(before, who+" changes nothing")
}

func seizeWithinLease[TTx any](k *kit[TTx]) {
	f := k.started()
	k.notSeized("Seize takes no claim whose lease runs")
	k.complete(f, []byte("done"))
}

func seizeCompleted[TTx any](k *kit[TTx]) {
	for _, unsettled := range []bool{false, true} {
		k.id = newID()
		f := k.abandoned()
		p := store.CompleteParams{Fenced: f, Outcomes: []byte("done"), Unsettled: unsettled}
		k.ok(k.own.Complete(k.ctx, p), "completion after the lease, while the fence stands,")
		k.notSeized("Seize takes no completed claim")
	}
}

func seizeAbsent[TTx any](k *kit[TTx]) {
	k.notSeized("Seize of a key that nothing is known of takes nothing")
	k.expired()
	k.notSeized("Seize of a key that was only proposed takes nothing")
	f := k.freshAbandoned()
	s, err := k.keep().Seize(k.ctx, seizure(k.foreign()))
	k.ok(err, "Seize of another tenant's key")
	k.rule(s.Claim == nil && s.Proposal == nil, "another tenant's key looks absent to Seize", s)
	k.complete(f, []byte("done"))
}

// freshAbandoned gives the kit a fresh key that is abandoned.
func (k *kit[TTx]) freshAbandoned() store.Fenced {
	k.Helper()
	k.id = newID()
	return k.abandoned()
}

func seizeConcurrently[TTx any](k *kit[TTx]) {
	old := k.abandoned()
	attempts := make([]store.SeizeParams, crowd)
	for i := range attempts {
		attempts[i] = seizure(k.id)
	}
	answers := race(crowd, func(i int) (store.Standing, error) { return k.keep().Seize(k.ctx, attempts[i]) })
	stands, winners := k.lookup().Claim, 0
	for i, a := range answers {
		k.ok(a.err, "each of many concurrent seizures")
		k.rule(a.standing.Claim != nil && a.standing.Claim.Attempt == stands.Attempt,
			"every concurrent Seize sees the same winner", a.standing)
		if stands.Attempt == attempts[i].Attempt {
			winners++
		}
	}
	k.rule(winners == 1, "exactly one of many concurrent seizures takes the claim", winners)
	k.rule(stands.Fence > old.Fence, "Seize raises the fence", k.lookup())
}

func seizeAgain[TTx any](k *kit[TTx]) {
	k.abandoned()
	p := seizure(k.id)
	p.Lease = short
	s, err := k.keep().Seize(k.ctx, p)
	k.ok(err, "Seize")
	first := store.Fenced{ID: k.id, Attempt: p.Attempt, Fence: s.Claim.Fence}
	k.Advance(past)
	k.rule(k.lookup().Claim.LeaseOver, "the lease of a seized claim ends on the database's clock", k.lookup())
	second := k.seize()
	k.rule(second.Fence > first.Fence, "every Seize raises the fence", first.Fence, second.Fence)
	k.fencedOut(first, "an attempt that seized the claim and lost it")
	k.complete(second, []byte("done"))
}

// seizeDuring starts a Seize of the kit's key while an item's transaction holds it. It may wait, or give up.
func (k *kit[TTx]) seizeDuring(p store.SeizeParams) <-chan answer {
	k.Helper()
	pending := async(func() (store.Standing, error) { return k.keep().Seize(k.ctx, p) })
	select {
	case a := <-pending:
		k.waited(a.err, "an item's transaction keeps Seize out")
		again := make(chan answer, 1)
		again <- a
		return again
	case <-time.After(patience):
	}
	return pending
}

// seizedAfter is how the key stands when p has seized it, at once or in a second try.
func (k *kit[TTx]) seizedAfter(pending <-chan answer, p store.SeizeParams) store.Standing {
	k.Helper()
	a := <-pending
	if a.err != nil {
		k.waited(a.err, "a Seize that does not wait to the end says so")
		a.standing, a.err = k.keep().Seize(k.ctx, p)
	}
	k.ok(a.err, "Seize after the item's transaction")
	k.rule(a.standing.Claim != nil && a.standing.Claim.Attempt == p.Attempt,
		"Seize takes the claim once the item's transaction has ended", a.standing)
	return a.standing
}

func seizeSeesCommit[TTx any](k *kit[TTx]) {
	f := k.abandoned()
	x := k.item(f, "effect")
	p := seizure(k.id)
	pending := k.seizeDuring(p)
	x.commit(done(f, "i1"))
	s := k.seizedAfter(pending, p)
	k.rule(items(s) == `i1="x"`, "Seize tells every item that was committed before it", s)
	k.count("effect", 1, "an item that was committed before Seize has its effect")
	k.fencedOut(f, "the attempt from which the claim was seized")
}

func seizeSeesRollback[TTx any](k *kit[TTx]) {
	f := k.abandoned()
	x := k.item(f, "effect")
	p := seizure(k.id)
	pending := k.seizeDuring(p)
	x.rollback()
	s := k.seizedAfter(pending, p)
	k.rule(items(s) == "", "an item without a record was not applied, and under a raised fence never will be", s)
	k.fencedOut(f, "the attempt from which the claim was seized")
	k.count("effect", 0, "an item that was rolled back before Seize has no effect")
}
