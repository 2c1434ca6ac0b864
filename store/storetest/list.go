package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

// another gives the kit a fresh key in the same tenant.
func (k *kit[TTx]) another() uuid.UUID {
	k.id.Key = uuid.New()
	return k.id.Key
}

// list tells all of the tenant's open operations, in pages of size.
func (k *kit[TTx]) list(tenant string, size int) (all []store.Open) {
	k.Helper()
	p := store.ListParams{Tenant: tenant, Limit: size}
	for {
		page, err := k.keep().List(k.ctx, p)
		k.ok(err, "List")
		k.rule(len(page) <= size, "List tells no more than its limit", len(page))
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		p.After = page[len(page)-1].Key
		k.rule(len(all) < 1000, "List comes to an end", len(all))
	}
}

func listTells[TTx any](k *kit[TTx]) {
	k.rule(len(k.list(k.id.Tenant, 10)) == 0, "nobody is needed where nothing happened")
	want := map[uuid.UUID]store.Open{}
	needed := func(o store.Open) {
		o.Key, o.Mode = k.id.Key, store.ModeExternalProgress
		want[o.Key] = o
		k.another()
	}
	k.propose(k.id)
	k.another()
	k.claimed()
	k.another()
	k.complete(k.claimed(), []byte("done"))
	k.another()
	k.settles(k.unsettled(), []byte("found"), false)
	k.another()

	k.abandoned()
	needed(store.Open{})
	k.unsettled()
	needed(store.Open{Completed: true})
	k.settles(k.unsettled(), []byte("still ambiguous"), true)
	needed(store.Open{Completed: true})
	f := k.claimed()
	k.observe(f, "i1", "x")
	needed(store.Open{Observed: true})
	f = k.claimed()
	k.complete(f, []byte("done"))
	k.observe(f, "i1", "x")
	k.observe(f, "i2", "x")
	needed(store.Open{Completed: true, Observed: true})

	all := k.list(k.id.Tenant, 10)
	for _, o := range all {
		o.Age = 0
		k.rule(o == want[o.Key], "List tells what is open, unsettled or observed, and how it is", o, want[o.Key])
	}
	k.rule(len(all) == len(want), "List tells every operation that needs somebody, once", len(all), len(want))
}

func listPages[TTx any](k *kit[TTx]) {
	var want []uuid.UUID
	for range 7 {
		want = append(want, k.another())
		k.unsettled()
		k.another()
		k.claimed()
	}
	slices.SortFunc(want, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	for _, size := range []int{1, 3, 7, 100} {
		var got []uuid.UUID
		for _, o := range k.list(k.id.Tenant, size) {
			got = append(got, o.Key)
		}
		k.rule(slices.Equal(got, want), "List pages in the order of the keys, without gaps or repeats", size, got, want)
	}
}

func listAge[TTx any](k *kit[TTx]) {
	k.abandoned()
	all := k.list(k.id.Tenant, 10)
	k.rule(len(all) == 1 && all[0].Age >= short && all[0].Age < time.Minute,
		"List tells the time since the claim on the database's clock", all)
	k.seize()
	k.rule(len(k.list(k.id.Tenant, 10)) == 0, "a claim that was seized is within a lease again", k.list(k.id.Tenant, 10))
	k.Advance(past)
	k.unsettledIn(k.id)
	older := k.list(k.id.Tenant, 10)
	k.rule(len(older) == 1 && older[0].Age >= all[0].Age+short, "an operation's age counts from its claim", all, older)
}

// unsettledIn completes the standing claim of id with an ambiguous outcome.
func (k *kit[TTx]) unsettledIn(id store.ID) {
	k.Helper()
	c := k.lookupID(k.own, id).Claim
	f := store.Fenced{ID: id, Attempt: c.Attempt, Fence: c.Fence}
	p := store.CompleteParams{Fenced: f, Outcomes: []byte("ambiguous"), Unsettled: true}
	k.ok(k.own.Complete(k.ctx, p), "completion under the fence")
}

func listTenants[TTx any](k *kit[TTx]) {
	k.unsettled()
	mine, other := k.id, k.foreign()
	k.rule(len(k.list(other.Tenant, 10)) == 0, "List tells nothing of another tenant", k.list(other.Tenant, 10))
	k.propose(other)
	f := k.claim(k.own, attempt(other))
	k.observe(f, "i1", "x")
	all := k.list(mine.Tenant, 10)
	k.rule(len(all) == 1 && all[0].Completed && !all[0].Observed,
		"an observation in one tenant is none in another", all)
}
