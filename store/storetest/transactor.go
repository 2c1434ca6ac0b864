package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/store"
)

// opened is a transaction that the store made. It is rolled back at the end of the test if the test did not end it.
type opened[TTx any] struct {
	k     *kit[TTx]
	tx    TTx
	ended bool
}

// open begins a transaction of the store with o, which must succeed.
func (k *kit[TTx]) open(o store.Opening) (*opened[TTx], store.Standing) {
	k.Helper()
	tx, s, err := k.Store.Begin(k.ctx, o)
	k.ok(err, "Begin")
	x := &opened[TTx]{k: k, tx: tx}
	k.Cleanup(func() {
		if !x.ended {
			_ = k.Store.Rollback(context.WithoutCancel(k.ctx), tx)
		}
	})
	return x, s
}

// item begins the transaction of an item under the fence f, with an effect of this name.
func (k *kit[TTx]) item(f store.Fenced, effect string) *opened[TTx] {
	k.Helper()
	x, _ := k.open(store.Opening{ID: f.ID, Hold: &f})
	x.effect(effect)
	return x
}

func (x *opened[TTx]) effect(name string) {
	x.k.Helper()
	x.k.ok(x.k.Effect(x.k.ctx, x.tx, name), "an effect in a transaction that Begin made")
}

func (x *opened[TTx]) end(c store.Closing) error {
	x.ended = true
	return x.k.Store.Commit(x.k.ctx, x.tx, c)
}

func (x *opened[TTx]) commit(c store.Closing) {
	x.k.Helper()
	x.k.ok(x.end(c), "Commit")
}

func (x *opened[TTx]) rollback() {
	x.k.Helper()
	x.ended = true
	x.k.ok(x.k.Store.Rollback(x.k.ctx, x.tx), "Rollback")
}

func done(f store.Fenced, item string) store.Closing {
	return store.Closing{Progress: &store.ProgressParams{Fenced: f, Done: item, Outcome: []byte("x"), Lease: long}}
}

func finished(f store.Fenced) store.Closing {
	return store.Closing{Complete: &store.CompleteParams{Fenced: f, Outcomes: []byte("done")}}
}

func beginClaims[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	p.Mode = store.ModeAtomic
	x, s := k.open(store.Opening{ID: k.id, Claim: &p})
	k.rule(won(s, p) && s.Proposal != nil && s.Claim.Fence > 0, "Begin tells the claim that it made", s)
	x.effect("effect")
	k.rule(k.lookup().Claim == nil, "a claim of Begin is not seen before its commit", k.lookup())
	x.commit(finished(store.Fenced{ID: k.id, Attempt: p.Attempt, Fence: s.Claim.Fence}))
	s = k.lookup()
	k.rule(won(s, p) && s.Claim.Completed && string(s.Claim.Outcomes) == "done" && !s.Claim.Unsettled,
		"Commit leaves the claim and its completion", s)
	k.count("effect", 1, "Commit leaves the effect with the completion")
}

func beginRolledBack[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	x, _ := k.open(store.Opening{ID: k.id, Claim: &p})
	x.effect("effect")
	x.rollback()
	k.rule(k.lookup().Claim == nil, "Rollback leaves no claim", k.lookup())
	k.count("effect", 0, "Rollback leaves no effect")

	p.FirstItem = "i1"
	x, s := k.open(store.Opening{ID: k.id, Claim: &p})
	k.rule(won(s, p), "a claim that was rolled back leaves the key free", s)
	x.effect("effect")
	x.commit(store.Closing{})
	k.rule(items(k.lookup()) == "i1 started", "Commit without more commits what is there", k.lookup())
	k.count("effect", 1, "Commit without more commits what is there")
}

func beginLoses[TTx any](k *kit[TTx]) {
	f := k.claimed()
	before := k.lookup()
	p := attempt(k.id)
	x, s := k.open(store.Opening{ID: k.id, Claim: &p})
	k.rule(s.Claim != nil && s.Claim.Attempt == f.Attempt, "Begin tells who holds a key that it did not get", s)
	x.effect("effect")
	x.rollback()
	k.unchanged(before, "a claim of Begin that loses changes nothing")

	p = attempt(newID())
	x, s = k.open(store.Opening{ID: p.ID, Claim: &p})
	k.rule(s.Claim == nil && s.Proposal == nil, "Begin tells that a key was refused", s)
	x.effect("effect")
	x.commit(store.Closing{})
	k.count("effect", 1, "the transaction of a claim that was refused is usable")
}

func beginTimesOut[TTx any](k *kit[TTx]) {
	free := store.ID{Tenant: k.id.Tenant, Key: newID().Key}
	k.propose(free)
	f := k.claimed()
	before := k.lookup()
	x := k.begin()
	k.claim(x.in, attempt(free))
	k.ok(x.in.Progress(k.ctx, store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("x"), Lease: long}), "progress")
	begin := func(o store.Opening) <-chan answer {
		return async(func() (store.Standing, error) {
			_, s, err := k.Store.Begin(k.ctx, o)
			return s, err
		})
	}
	p := attempt(free)
	claims, holds := begin(store.Opening{ID: free, Claim: &p}), begin(store.Opening{ID: k.id, Hold: &f})
	k.waited((<-claims).err, "Begin waits for a claim no longer than the lock timeout, and says so")
	k.waited((<-holds).err, "Begin waits to hold no longer than the lock timeout, and says so")
	x.rollback()
	k.unchanged(before, "a Begin that ran into the lock timeout wrote nothing")
	k.item(f, "effect").commit(done(f, "i1"))
	k.claim(k.own, p) // no transaction is left in the way
}

func commitProgress[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	p.Mode, p.Lease = store.ModePerItem, brief
	f := k.claim(k.own, p)
	k.item(f, "i1").rollback()
	k.rule(items(k.lookup()) == "", "an item that is rolled back has no record", k.lookup())
	k.count("i1", 0, "an item that is rolled back has no effect")

	x := k.item(f, "i1")
	k.rule(items(k.lookup()) == "", "an item's record is not seen before its commit", k.lookup())
	x.commit(done(f, "i1"))
	k.Advance(brief)
	s := k.lookup()
	k.rule(items(s) == `i1="x"` && !s.Claim.LeaseOver && s.Claim.Fence == f.Fence,
		"an item's commit leaves its record, and renews the lease", s)
	k.count("i1", 1, "an item's commit leaves its effect")

	c := done(f, "i2")
	c.Progress.Lease = 0
	k.item(f, "i2").commit(c)
	c = done(f, "i3")
	c.Progress.Next = "i4"
	k.item(f, "i3").commit(c)
	s = k.lookup()
	k.rule(items(s) == `i1="x" i2="x" i3="x"` && s.Claim.LeaseOver,
		"an item that holds the claim is recorded after the lease too, but renews and starts nothing", s)
	k.item(f, "end").commit(store.Closing{Complete: &store.CompleteParams{
		Fenced: f, Outcomes: []byte("done"), Unsettled: true,
	}})
	s = k.lookup()
	k.rule(s.Claim.Completed && s.Claim.Unsettled && string(s.Claim.Outcomes) == "done",
		"Commit stores a completion as Complete does", s)
	for _, item := range []string{"i2", "i3"} {
		k.count(item, 1, "every item commits on its own")
	}
}

func holdFenced[TTx any](k *kit[TTx]) {
	f := k.started()
	before := k.lookup()
	cannot := func(f store.Fenced, why string) {
		k.Helper()
		_, _, err := k.Store.Begin(k.ctx, store.Opening{ID: f.ID, Hold: &f})
		k.refused(err, store.ErrFenced, "to hold under "+why+" is ErrFenced")
		k.unchanged(before, "to hold under "+why+" changes nothing")
	}
	for name, other := range fences(f) {
		cannot(other, name)
	}
	f.ID = k.foreign()
	cannot(f, "another tenant's name")
	f.ID = k.id
	k.complete(f, []byte("done")) // no transaction is left in the way
	before = k.lookup()
	cannot(f, "the fence of a completed claim")
}

func commitFenced[TTx any](k *kit[TTx]) {
	f := k.started()
	before := k.lookup()
	late := f
	late.Fence++
	for name, c := range map[string]store.Closing{"progress": done(late, "i1"), "completion": finished(late)} {
		x, _ := k.open(store.Opening{ID: k.id})
		x.effect("effect")
		k.refused(x.end(c), store.ErrNotCommitted, "Commit says that it did not commit: the fence of its "+name+" has moved")
		k.unchanged(before, "Commit with a fenced "+name+" changes nothing")
		k.count("effect", 0, "Commit with a fenced "+name+" leaves no effect")
	}
	k.complete(f, []byte("done")) // no transaction is left in the way
}

func beginOutlives[TTx any](k *kit[TTx]) {
	f := k.started()
	ctx, cancel := context.WithCancel(k.ctx)
	tx, _, err := k.Store.Begin(ctx, store.Opening{ID: k.id, Hold: &f})
	k.ok(err, "Begin")
	cancel()
	k.ok(k.Effect(k.ctx, tx, "effect"), "an effect after the end of the context that Begin got")
	k.ok(k.Store.Commit(k.ctx, tx, done(f, "i1")), "Commit after the end of the context that Begin got")
	k.count("effect", 1, "Commit leaves the effect")
	k.rule(items(k.lookup()) == `i1="x"`, "Commit leaves the record", k.lookup())
}

func commitCancelled[TTx any](k *kit[TTx]) {
	f := k.started()
	x := k.item(f, "effect")
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	x.ended = true
	err := k.Store.Commit(ctx, x.tx, done(f, "i1"))
	s, readErr := k.own.Lookup(k.ctx, store.LookupParams{ID: k.id, Barrier: true, AwaitWrites: true})
	k.ok(readErr, "a lookup behind the barrier")
	n, countErr := k.Count(k.ctx, "effect")
	k.ok(countErr, "the harness's Count")
	k.rule((n == 1) == (items(s) == `i1="x"`), "the effect and the record commit together or not at all", n, s)
	k.rule(err != nil || n == 1, "Commit returns nil only if it committed", n)
	k.rule(!errors.Is(err, store.ErrNotCommitted) || n == 0,
		"Commit says ErrNotCommitted only if it did not commit", n, err)
}

func beginIsolates[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	p := attempt(k.id)
	x, s := k.open(store.Opening{ID: k.id, Claim: &p})
	undone, err := k.Store.Isolate(k.ctx, x.tx, 2, func(i int, tx TTx) error {
		if err := k.Effect(k.ctx, tx, fmt.Sprint("item ", i)); err != nil || i == 1 {
			return err
		}
		return errors.New("broken")
	})
	k.ok(err, "Isolate in a transaction that Begin made")
	k.rule(len(undone) == 2 && undone[0] != nil && undone[1] == nil, "undone has one entry per item", undone)
	x.commit(finished(store.Fenced{ID: k.id, Attempt: p.Attempt, Fence: s.Claim.Fence}))
	k.count("item 0", 0, "an item that fails leaves no effect")
	k.count("item 1", 1, "an item that succeeds leaves its effect")
}

// beginEnded has an executor commit the transaction that Begin made. A store refuses that, and may undo the transaction with it; or
// it notices it, whether the transaction is then to be committed or rolled back.
func beginEnded[TTx any](k *kit[TTx]) {
	f := k.started()
	x := k.item(f, "effect")
	if k.Commit(k.ctx, x.tx) == nil {
		k.refused(x.end(done(f, "i1")), store.ErrTxEnded, "Commit notices that an executor ended the transaction")
		k.rule(items(k.lookup()) == "i1 started", "nothing is recorded in a transaction that has ended", k.lookup())
		y := k.item(f, "another")
		k.ok(k.Commit(k.ctx, y.tx), "another commit by the handle")
		y.ended = true
		k.refused(k.Store.Rollback(k.ctx, y.tx), store.ErrTxEnded, "Rollback notices that an executor ended the transaction")
		return
	}
	k.rule(items(k.lookup()) == "i1 started", "a commit that was refused committed nothing", k.lookup())
	if k.Rollback(k.ctx, x.tx) == nil {
		k.rule(false, "what refuses a commit by the handle refuses a rollback too")
	}
	if err := x.end(done(f, "i1")); err != nil {
		k.refused(err, store.ErrTxEnded, "Commit says of a transaction that was undone with the refusal that it has ended")
		k.count("effect", 0, "a transaction that was undone with the refusal leaves no effect")
		return
	}
	k.count("effect", 1, "a transaction is usable after its handle refused a commit")
}

// awaitWrites starts a lookup that awaits writes and sees that it waits.
func (k *kit[TTx]) awaitWrites() <-chan answer {
	k.Helper()
	return k.waits("AwaitWrites waits for an item's transaction that is under way", func() (store.Standing, error) {
		return k.own.Lookup(k.ctx, store.LookupParams{ID: k.id, Barrier: true, AwaitWrites: true})
	})
}

func awaitSeesCommit[TTx any](k *kit[TTx]) {
	f := k.started()
	x := k.item(f, "effect")
	pending := k.awaitWrites()
	x.commit(done(f, "i1"))
	a := <-pending
	k.ok(a.err, "a lookup that awaits writes")
	k.rule(items(a.standing) == `i1="x"`, "AwaitWrites sees the item that it waited for", a.standing)

	x = k.item(f, "effect")
	a = <-k.awaitWrites()
	k.waited(a.err, "AwaitWrites waits no longer than the lock timeout, and says so")
	x.commit(finished(f))
	k.rule(k.lookup().Claim.Completed, "a lookup that did not wait to the end is in nobody's way", k.lookup())
}

func awaitSeesRollback[TTx any](k *kit[TTx]) {
	x := k.item(k.started(), "effect")
	pending := k.awaitWrites()
	x.rollback()
	a := <-pending
	k.ok(a.err, "a lookup that awaits writes")
	k.rule(items(a.standing) == "i1 started", "AwaitWrites does not see an item that was rolled back", a.standing)
}

func awaitLeavesNoTrace[TTx any](k *kit[TTx]) {
	p := store.LookupParams{ID: k.id, Barrier: true, AwaitWrites: true, Content: true}
	await := func(before store.Standing) {
		k.Helper()
		s, err := k.own.Lookup(k.ctx, p)
		k.ok(err, "a lookup that awaits writes")
		k.rule(show(s) == show(before), "AwaitWrites tells what a lookup tells", s, before)
		k.unchanged(before, "AwaitWrites changes nothing")
	}
	await(k.lookup())
	f := k.started()
	await(k.lookup())
	k.complete(f, []byte("done"))
	await(k.lookup())
}
