package storetest

import (
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// guarded is a claim of the kit's key that is made only while the kit's value has this revision.
func (k *kit[TTx]) guarded(revision int64) store.ClaimParams {
	p := attempt(k.id)
	p.Guards = []store.Guard{{Name: k.epoch().Name, Revision: revision}}
	return p
}

// ways are the ways to claim, each in a transaction of its own that is committed unless the claim fails.
func (k *kit[TTx]) ways() map[string]func(p store.ClaimParams) (store.Standing, error) {
	return map[string]func(p store.ClaimParams) (store.Standing, error){
		"Own": func(p store.ClaimParams) (store.Standing, error) { return k.own.Claim(k.ctx, p) },
		"Begin": func(p store.ClaimParams) (store.Standing, error) {
			tx, s, err := k.Store.Begin(k.ctx, store.Opening{ID: p.ID, Claim: &p})
			if err != nil {
				return s, err
			}
			return s, k.Store.Commit(k.ctx, tx, store.Closing{})
		},
		"In": func(p store.ClaimParams) (store.Standing, error) {
			tx, err := k.Begin(k.ctx)
			if err != nil {
				return store.Standing{}, err
			}
			s, err := k.Store.In(tx).Claim(k.ctx, p)
			if err != nil {
				_ = k.Rollback(k.ctx, tx)
				return s, err
			}
			return s, k.Commit(k.ctx, tx)
		},
	}
}

func guardMet[TTx any](k *kit[TTx]) {
	k.moved(1)
	k.moved(2)
	for way, claim := range k.ways() {
		k.id.Key = newID().Key
		k.propose(k.id)
		p := k.guarded(2)
		s, err := claim(p)
		k.ok(err, "a claim by "+way+" whose guard is met")
		k.rule(won(s, p), "a claim whose guard is met is made", way, s)
		k.rule(won(k.lookup(), p), "a claim whose guard is met stands", way, k.lookup())
	}
	k.moved(3)
}

func guardUnmet[TTx any](k *kit[TTx]) {
	k.moved(1)
	k.moved(2)
	for way, claim := range k.ways() {
		k.id.Key = newID().Key
		k.propose(k.id)
		before := k.lookup()
		for _, revision := range []int64{1, 3} {
			s, err := claim(k.guarded(revision))
			k.refused(err, store.ErrGuard, "a claim by "+way+" whose guard is not met is ErrGuard")
			k.rule(s.Claim == nil && s.Proposal == nil, "and is told nothing of the key", s)
			k.unchanged(before, "a claim whose guard is not met changes nothing")
		}
		absent := k.guarded(2)
		absent.Guards = append(absent.Guards, store.Guard{Name: "another", Revision: 1})
		_, err := claim(absent)
		k.refused(err, store.ErrGuard, "a guard of a value that does not exist is not met")
		k.unchanged(before, "a claim of which one guard is not met changes nothing")
		s, err := claim(k.guarded(2))
		k.ok(err, "a claim whose guard is met, after a refusal,")
		k.rule(s.Claim != nil, "a refused claim leaves the key free", s)
	}
}

func guardFirst[TTx any](k *kit[TTx]) {
	k.moved(1)
	states := map[string]func(){
		"a key that does not exist": func() {},
		"a key that is proposed":    func() { k.propose(k.id) },
		"a key that is claimed":     func() { k.claimed() },
		"a key that is completed":   func() { k.complete(k.claimed(), []byte("done")) },
	}
	for state, bring := range states {
		k.id.Key = newID().Key
		bring()
		before := k.lookup()
		for way, claim := range k.ways() {
			p := k.guarded(7)
			p.Digest = digestOf("other")
			_, err := claim(p)
			k.refused(err, store.ErrGuard, "a guard comes before every other answer: "+state+" by "+way)
		}
		guards := []store.Guard{{Name: k.epoch().Name, Revision: 7}}
		for _, barrier := range []bool{false, true} {
			_, err := k.own.Lookup(k.ctx, store.LookupParams{ID: k.id, Barrier: barrier, Guards: guards})
			k.refused(err, store.ErrGuard, "a lookup whose guard is not met is ErrGuard: "+state)
		}
		k.unchanged(before, "a guard that is not met changes nothing")
		guards[0].Revision = 1
		s, err := k.own.Lookup(k.ctx, store.LookupParams{ID: k.id, Content: true, Guards: guards})
		k.ok(err, "a lookup whose guard is met")
		k.rule(show(s) == show(before), "a lookup whose guard is met tells the key", s, before)
	}
}

func guardInvalid[TTx any](k *kit[TTx]) {
	k.moved(1)
	k.propose(k.id)
	many := make([]store.Guard, store.MaxGuards+1)
	for i := range many {
		many[i] = store.Guard{Name: newID().Tenant, Revision: 1}
	}
	epoch := k.epoch().Name
	for name, guards := range map[string][]store.Guard{
		"revision 0":          {{Name: epoch}},
		"a negative revision": {{Name: epoch, Revision: -1}},
		"no name":             {{Revision: 1}},
		"a name twice":        {{Name: epoch, Revision: 1}, {Name: epoch, Revision: 1}},
		"too many":            many,
	} {
		p := attempt(k.id)
		p.Guards = guards
		for way, claim := range k.ways() {
			_, err := claim(p)
			k.refused(err, contract.ErrInvalid, "guards with "+name+" are a *contract.InvalidError by "+way)
		}
		_, err := k.own.Lookup(k.ctx, store.LookupParams{ID: k.id, Guards: guards})
		k.refused(err, contract.ErrInvalid, "guards with "+name+" are a *contract.InvalidError of Lookup")
	}
	k.rule(k.lookup().Claim == nil, "guards that are not valid let nothing be claimed", k.lookup())
}

func guardTenants[TTx any](k *kit[TTx]) {
	k.moved(1)
	k.id = k.foreign()
	k.propose(k.id)
	_, err := k.own.Claim(k.ctx, k.guarded(1))
	k.refused(err, store.ErrGuard, "another tenant's value meets no guard")
	k.moved(1)
	k.claim(k.own, k.guarded(1))
}

func guardLeavesUsable[TTx any](k *kit[TTx]) {
	k.moved(1)
	k.propose(k.id)
	x := k.begin()
	_, err := x.in.Claim(k.ctx, k.guarded(2))
	k.refused(err, store.ErrGuard, "a claim whose guard is not met is ErrGuard")
	x.effect("effect")
	k.claim(x.in, k.guarded(1))
	x.commit()
	k.count("effect", 1, "a transaction is usable after ErrGuard")
	k.rule(k.lookup().Claim != nil, "a transaction is usable after ErrGuard", k.lookup())
}

// guardSeesMove claims while a change of its guard's value is not committed, which then ends in either way.
func guardSeesMove[TTx any](k *kit[TTx]) {
	revision := int64(1)
	k.moved(1)
	for way, claim := range k.ways() {
		for _, commits := range []bool{false, true} {
			k.id.Key = newID().Key
			k.propose(k.id)
			mover := k.bare()
			_, err := mover.values().Swap(k.ctx, k.swapTo(revision, "x"))
			k.ok(err, "a swap")
			p := k.guarded(revision)
			done := k.waits("a claim by "+way+" waits for a change of its guard's value that is under way",
				func() (store.Standing, error) { return claim(p) })
			if commits {
				mover.commit(store.Closing{})
				revision++
			} else {
				mover.rollback()
			}
			a := <-done
			if commits {
				k.refused(a.err, store.ErrGuard, "a claim whose guard's value has changed while it waited is ErrGuard")
				k.rule(k.lookup().Claim == nil, "a claim whose guard's value has changed while it waited is not made", k.lookup())
			} else {
				k.ok(a.err, "a claim that waited for a change that was rolled back")
				k.rule(won(a.standing, p), "a claim that waited for a change that was rolled back is made", a.standing)
			}
		}
	}
}

// guardKeepsMoveOut changes the value of a guard while the claim's transaction is open.
func guardKeepsMoveOut[TTx any](k *kit[TTx]) {
	k.moved(1)
	k.propose(k.id)
	p := k.guarded(1)
	x, s := k.open(store.Opening{ID: k.id, Claim: &p})
	k.rule(won(s, p), "a claim whose guard is met is made", s)
	const rule = "a change of a guard's value waits for the claim's transaction"
	mover := k.blocked(rule, func() valued { return k.swap(k.swapTo(1, "epoch 2")) })
	x.effect("effect")
	x.commit(store.Closing{})
	v := <-mover
	k.rule(v.is(2, "epoch 2"), "a change that waited for a claim is made after it", v)
	k.rule(won(k.lookup(), p), "a claim that kept a change out stands", k.lookup())

	k.id.Key = newID().Key
	k.propose(k.id)
	y := k.begin()
	k.claim(y.in, k.guarded(2))
	mover = k.blocked(rule, func() valued { return k.swap(k.swapTo(2, "epoch 3")) })
	y.effect("effect")
	y.commit()
	v = <-mover
	k.rule(v.is(3, "epoch 3"), "a change that waited for a claim is made after it", v)
	k.count("effect", 2, "what is written under a guard is committed")
}

// guardOfItem holds a guard in the transaction of an item.
func guardOfItem[TTx any](k *kit[TTx]) {
	k.moved(1)
	f := k.claimed()
	o := store.Opening{ID: k.id, Hold: &f, Guards: []store.Guard{{Name: k.epoch().Name, Revision: 1}}}
	x, _ := k.open(o)
	mover := k.blocked("a change of a guard's value waits for the item's transaction", func() valued { return k.swap(k.swapTo(1, "epoch 2")) })
	x.effect("effect")
	x.commit(done(f, "i1"))
	k.ok((<-mover).err, "a change that waited for an item")
	_, _, err := k.Store.Begin(k.ctx, o)
	k.refused(err, store.ErrGuard, "Begin whose guard is not met is ErrGuard")
	f.Fence++
	_, _, err = k.Store.Begin(k.ctx, o)
	k.refused(err, store.ErrGuard, "a guard comes before the fence")
	o.Guards[0].Revision = 0
	_, _, err = k.Store.Begin(k.ctx, o)
	k.refused(err, contract.ErrInvalid, "guards of Begin that are not valid are a *contract.InvalidError")
	k.moved(3) // no transaction is left in the way
	k.count("effect", 1, "an item under a guard is committed")
}

// guardRace moves a value while many claim under its revisions: the value does not move within a claim's transaction.
func guardRace[TTx any](k *kit[TTx]) {
	k.moved(1)
	const rounds = 8
	type made struct {
		revision int64
		err      error
	}
	results := make(chan made)
	for revision := int64(1); revision <= rounds; revision++ {
		p := attempt(store.ID{Tenant: k.id.Tenant, Key: newID().Key})
		p.AcceptUnminted, p.Guards = true, k.guarded(revision).Guards
		go func() {
			time.Sleep(time.Duration(revision) * time.Millisecond)
			tx, _, err := k.Store.Begin(k.ctx, store.Opening{ID: p.ID, Claim: &p})
			if err == nil {
				var v store.Value
				v, err = k.Store.Values(tx).Load(k.ctx, k.epoch())
				if err == nil && v.Revision != revision {
					err = errStaleWrite
				}
				if endErr := k.Store.Commit(k.ctx, tx, store.Closing{}); err == nil {
					err = endErr
				}
			}
			results <- made{revision, err}
		}()
	}
	for revision := int64(2); revision <= rounds; revision++ {
		k.moved(revision)
	}
	for range rounds {
		m := <-results
		if m.err != nil {
			k.refused(m.err, store.ErrGuard, "a claim is made while its guard's value stands, or is ErrGuard")
		}
	}
}

var errStaleWrite = &store.Error{Op: "storetest: the value has moved within the claim's transaction"}
