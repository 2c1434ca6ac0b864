package storetest

import (
	"bytes"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

// observe records that the attempt of f says outcome of an item.
func (k *kit[TTx]) observe(f store.Fenced, item, outcome string) {
	k.Helper()
	p := store.ObserveParams{Fenced: f, Item: item, Outcome: []byte(outcome)}
	k.ok(k.keep().Observe(k.ctx, p), "Observe of a key that is claimed")
}

func observeBeside[TTx any](k *kit[TTx]) {
	old := k.abandoned()
	f := k.seize()
	before := k.lookupPlain()
	outcome := everyByte(300)
	p := store.ObserveParams{Fenced: old, Item: "i1", Outcome: outcome}
	k.ok(k.keep().Observe(k.ctx, p), "Observe of a claim under way")
	spoil(outcome)
	after := k.lookupPlain()
	k.rule(show(after) == show(before), "an observation changes nothing of what the key says", after, before)

	all := k.lookup().Claim.Observations
	k.rule(len(all) == 1 && all[0].Item == "i1" && all[0].Attempt == old.Attempt &&
		bytes.Equal(all[0].Outcome, everyByte(300)),
		"an observation is told with its item, its attempt and its outcome, byte for byte", all)
	spoil(all[0].Outcome)
	k.rule(bytes.Equal(k.lookup().Claim.Observations[0].Outcome, everyByte(300)),
		"a store shares no memory with its callers", k.lookup())
	k.rule(k.lookupPlain().Claim.Observations == nil, "observations are told only with content", k.lookupPlain())

	k.complete(f, []byte("done"))
	k.observe(old, "i2", "")
	s := k.lookup()
	k.rule(len(s.Claim.Observations) == 2 && s.Claim.Completed && string(s.Claim.Outcomes) == "done",
		"a completed key is observed too, and keeps its outcomes", s)
}

func observeOnce[TTx any](k *kit[TTx]) {
	old := k.abandoned()
	f := k.seize()
	k.observe(old, "i1", "first")
	k.observe(old, "i1", "second")
	k.rule(observations(k.lookup()) == `i1="first"`, "the first observation of an attempt and item stays", k.lookup())
	k.observe(old, "i2", "another item")
	other := f
	other.Attempt = uuid.New()
	k.observe(other, "i1", "another attempt")
	k.rule(observations(k.lookup()) == `i1="another attempt" i1="first" i2="another item"`,
		"every attempt may say something of every item", k.lookup())
	answers := race(10, func(int) (store.Standing, error) {
		p := store.ObserveParams{Fenced: old, Item: "i3", Outcome: []byte("x")}
		return store.Standing{}, k.keep().Observe(k.ctx, p)
	})
	for _, a := range answers {
		k.ok(a.err, "an observation that is made again")
	}
	k.rule(len(k.lookup().Claim.Observations) == 4, "concurrent observations are one", k.lookup())
}

func observeAbsent[TTx any](k *kit[TTx]) {
	k.propose(k.id)
	before := k.lookup()
	p := store.ObserveParams{Item: "i1", Outcome: []byte("x")}
	for name, id := range map[string]store.ID{"was only proposed": k.id, "nothing is known of": newID()} {
		p.Fenced = store.Fenced{ID: id, Attempt: uuid.New(), Fence: 1}
		k.refused(k.keep().Observe(k.ctx, p), store.ErrFenced, "Observe of a key that "+name+" is ErrFenced")
	}
	k.unchanged(before, "Observe of a key without a claim changes nothing")
	k.claim(k.own, attempt(k.id))
	k.rule(observations(k.lookup()) == "", "Observe of a key without a claim leaves nothing", k.lookup())
}

func observeTenants[TTx any](k *kit[TTx]) {
	f := k.claimed()
	before := k.lookup()
	foreign := f
	foreign.ID = k.foreign()
	p := store.ObserveParams{Fenced: foreign, Item: "i1", Outcome: []byte("x")}
	k.refused(k.keep().Observe(k.ctx, p), store.ErrFenced, "Observe under another tenant's name is ErrFenced")
	k.propose(foreign.ID)
	k.claim(k.own, attempt(foreign.ID))
	k.observe(foreign, "i1", "x")
	k.unchanged(before, "an observation in one tenant is none in another")
}
