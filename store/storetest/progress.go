package storetest

import (
	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

// started claims the kit's key with the first item i1.
func (k *kit[TTx]) started() store.Fenced {
	k.Helper()
	k.propose(k.id)
	p := attempt(k.id)
	p.FirstItem = "i1"
	return k.claim(k.own, p)
}

func (k *kit[TTx]) progress(p store.ProgressParams) {
	k.Helper()
	p.Lease = long
	k.ok(k.own.Progress(k.ctx, p), "progress under the fence")
}

func progressStores[TTx any](k *kit[TTx]) {
	f := k.started()
	k.progress(store.ProgressParams{Fenced: f, Done: "i1", Outcome: everyByte(300), Next: "i2"})
	s := k.lookup()
	k.rule(string(s.Claim.Items["i1"]) == string(everyByte(300)), "an item's outcome comes back byte for byte", s)
	outcome, started := s.Claim.Items["i2"]
	k.rule(started && outcome == nil && len(s.Claim.Items) == 2,
		"the next item is started with the outcome of the last", s)
	k.rule(!s.Claim.Completed && s.Claim.Attempt == f.Attempt && s.Claim.Fence == f.Fence,
		"progress completes nothing and moves no fence", s)

	k.progress(store.ProgressParams{Fenced: f, Done: "i2", Outcome: []byte("two")})
	k.progress(store.ProgressParams{Fenced: f, Done: "i3", Outcome: []byte("three")})
	s = k.lookup()
	k.rule(string(s.Claim.Items["i2"]) == "two", "a started item gets its outcome", s)
	k.rule(string(s.Claim.Items["i3"]) == "three", "an item that was not started gets its outcome too", s)
	k.rule(len(s.Claim.Items) == 3, "progress without a next item starts none", s)
}

// fences are the ways of not holding f.
func fences(f store.Fenced) map[string]store.Fenced {
	otherAttempt, lower, higher, otherKey := f, f, f, f
	otherAttempt.Attempt = uuid.New()
	lower.Fence--
	higher.Fence++
	otherKey.Key = uuid.New()
	return map[string]store.Fenced{
		"another attempt": otherAttempt, "a lower fence": lower, "a higher fence": higher,
		"a key that is not claimed": otherKey,
	}
}

func progressFenced[TTx any](k *kit[TTx]) {
	f := k.started()
	before := k.lookup()
	late := store.ProgressParams{Done: "i1", Outcome: []byte("late"), Next: "i2", Lease: short}
	for name, other := range fences(f) {
		late.Fenced = other
		k.refused(k.own.Progress(k.ctx, late), store.ErrFenced, "progress under "+name+" is ErrFenced")
		k.unchanged(before, "progress under "+name+" changes nothing")
	}
	k.Advance(past)
	k.unchanged(before, "progress that is fenced does not shorten the lease")

	k.ok(k.own.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte("done")}), "a completion")
	before = k.lookup()
	late.Fenced = f
	k.refused(k.own.Progress(k.ctx, late), store.ErrFenced, "progress after completion is ErrFenced")
	k.unchanged(before, "progress after completion changes nothing")
}

func progressKeepsOutcome[TTx any](k *kit[TTx]) {
	f := k.started()
	k.progress(store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("first"), Next: "i1"})
	k.rule(items(k.lookup()) == `i1="first"`, "to start an item that has an outcome does not take it away", k.lookup())
	k.progress(store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("second"), Next: "i2"})
	k.rule(items(k.lookup()) == `i1="first" i2 started`,
		"an item's outcome is never overwritten; the rest of the progress is made", k.lookup())
}

func progressEmptyOutcome[TTx any](k *kit[TTx]) {
	f := k.started()
	k.progress(store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte{}, Next: "i2"})
	k.rule(items(k.lookup()) == `i1="" i2 started`,
		"an empty outcome is not the outcome of an item that was only started", k.lookup())
}

func progressRenews[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	p.Lease = brief
	f := k.claim(k.own, p)
	k.progress(store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("x")})
	k.Advance(brief)
	k.rule(!k.lookup().Claim.LeaseOver, "progress renews the lease", k.lookup())

	err := k.own.Progress(k.ctx, store.ProgressParams{Fenced: f, Done: "i2", Outcome: []byte("x"), Lease: short})
	k.ok(err, "progress under the fence")
	k.Advance(past)
	k.rule(k.lookup().Claim.LeaseOver, "a renewed lease counts from the progress, and ends", k.lookup())
	before := k.lookup()
	late := store.ProgressParams{Fenced: f, Done: "i3", Outcome: []byte("x"), Next: "i4", Lease: long}
	k.refused(k.own.Progress(k.ctx, late), store.ErrFenced, "progress once the lease is over is ErrFenced")
	x := k.begin()
	k.refused(x.in.Progress(k.ctx, late), store.ErrFenced, "progress once the lease is over is ErrFenced, wherever")
	x.commit()
	k.unchanged(before, "progress once the lease is over changes nothing: a lease that has ended is never renewed")
}
