package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// epoch is the kit's value.
func (k *kit[TTx]) epoch() store.ValueID { return store.ValueID{Tenant: k.id.Tenant, Name: "epoch"} }

func (k *kit[TTx]) swapTo(revision int64, content string) store.SwapParams {
	return store.SwapParams{ValueID: k.epoch(), Revision: revision, Content: []byte(content)}
}

// bare begins a transaction of the store's own that is bound to the kit's tenant and has done nothing yet.
func (k *kit[TTx]) bare() *opened[TTx] {
	k.Helper()
	x, s := k.open(store.Opening{ID: store.ID{Tenant: k.id.Tenant}})
	k.rule(s.Proposal == nil && s.Claim == nil, "Begin with a tenant alone tells of no key", s)
	return x
}

func (x *opened[TTx]) values() store.Values { return x.k.Store.Values(x.tx) }

// valued is what a call about a value returned.
type valued struct {
	store.Value
	err error
}

func (v valued) is(revision int64, content string) bool {
	return v.err == nil && v.Revision == revision && string(v.Content) == content
}

// inValues runs call in a transaction of the store's own, and commits it unless call fails.
func (k *kit[TTx]) inValues(call func(v store.Values) (store.Value, error)) (v valued) {
	tx, _, err := k.Store.Begin(k.ctx, store.Opening{ID: store.ID{Tenant: k.id.Tenant}})
	if err != nil {
		return valued{err: err}
	}
	v.Value, v.err = call(k.Store.Values(tx))
	if v.err != nil {
		_ = k.Store.Rollback(context.WithoutCancel(k.ctx), tx)
		return v
	}
	v.err = k.Store.Commit(k.ctx, tx, store.Closing{})
	return v
}

func (k *kit[TTx]) load(id store.ValueID) valued {
	return k.inValues(func(v store.Values) (store.Value, error) { return v.Load(k.ctx, id) })
}

func (k *kit[TTx]) hold() valued {
	return k.inValues(func(v store.Values) (store.Value, error) { return v.Hold(k.ctx, k.epoch()) })
}

func (k *kit[TTx]) swap(p store.SwapParams) valued {
	return k.inValues(func(v store.Values) (store.Value, error) { return v.Swap(k.ctx, p) })
}

// moved swaps the kit's value, which must succeed, from the revision before to revision.
func (k *kit[TTx]) moved(revision int64) {
	k.Helper()
	v := k.swap(k.swapTo(revision-1, fmt.Sprint("epoch ", revision)))
	k.rule(v.is(revision, fmt.Sprint("epoch ", revision)), "a swap from the standing revision returns the value with the next one", v)
}

// valueStands fails the test unless the kit's value has this revision, and the content that moved gave it.
func (k *kit[TTx]) valueStands(revision int64, rule string) {
	k.Helper()
	want := ""
	if revision > 0 {
		want = fmt.Sprint("epoch ", revision)
	}
	v := k.load(k.epoch())
	k.rule(v.is(revision, want), rule, v)
}

// pending is a call about a value in another goroutine.
func pending(call func() valued) <-chan valued {
	done := make(chan valued, 1)
	go func() { done <- call() }()
	return done
}

// blocked starts call and sees that it does not return.
func (k *kit[TTx]) blocked(rule string, call func() valued) <-chan valued {
	k.Helper()
	done := pending(call)
	select {
	case v := <-done:
		k.rule(false, rule, v)
	case <-time.After(patience):
	}
	return done
}

func valueAbsent[TTx any](k *kit[TTx]) {
	k.valueStands(0, "a value that does not exist has revision 0 and no content")
	v := k.hold()
	k.rule(v.is(0, "") && v.Content == nil, "to hold a value that does not exist tells revision 0", v)
	v = k.swap(k.swapTo(1, "x"))
	k.refused(v.err, store.ErrRevision, "a swap of a value that does not exist is ErrRevision")
	k.rule(v.Revision == 0 && v.Content == nil, "and tells that there is none", v)
	k.valueStands(0, "what did not make a value leaves none")
}

func valueSwapped[TTx any](k *kit[TTx]) {
	for revision := range int64(5) {
		k.moved(revision + 1)
		k.valueStands(revision+1, "a value that was swapped stands with the next revision")
		v := k.hold()
		k.rule(v.is(revision+1, fmt.Sprint("epoch ", revision+1)), "Hold tells what Load tells", v)
	}
	v := k.swap(k.swapTo(5, "epoch 5"))
	k.rule(v.is(6, "epoch 5"), "a swap to the same content is a change", v)
}

func valueStale[TTx any](k *kit[TTx]) {
	for revision := range int64(3) {
		k.moved(revision + 1)
	}
	for _, stale := range []int64{0, 1, 2, 4, 1 << 40} {
		v := k.swap(k.swapTo(stale, "stale"))
		k.refused(v.err, store.ErrRevision, "a swap from another revision is ErrRevision")
		k.rule(v.Revision == 3 && string(v.Content) == "epoch 3", "a swap that is refused returns the value that stands", stale, v)
		k.valueStands(3, "a swap that is refused changes nothing")
	}
}

func valueConcurrently[TTx any](k *kit[TTx]) {
	for revision := range int64(3) {
		var all []<-chan valued
		for i := range crowd {
			all = append(all, pending(func() valued { return k.swap(k.swapTo(revision, fmt.Sprint(i))) }))
		}
		stands := store.Value{}
		for _, p := range all {
			v := <-p
			if v.err == nil {
				k.rule(stands.Revision == 0, "of many swaps from one revision one wins", stands, v)
				stands = v.Value
			} else {
				k.refused(v.err, store.ErrRevision, "every other is ErrRevision")
				k.rule(v.Revision == revision+1, "and is told the revision that won", v)
			}
		}
		k.rule(stands.Revision == revision+1, "one of many swaps from one revision wins", stands)
		v := k.load(k.epoch())
		k.rule(v.is(stands.Revision, string(stands.Content)), "what the winner was told stands", v, stands)
	}
}

// valueCounts lets many count at once, each by reading and swapping until it succeeds: no count is lost and no revision is given twice.
func valueCounts[TTx any](k *kit[TTx]) {
	const each = 5
	counter := func() valued {
		var v valued
		for range each {
			for v = k.load(k.epoch()); ; {
				next := k.swap(k.swapTo(v.Revision, fmt.Sprint("epoch ", v.Revision+1)))
				if next.err == nil {
					v = next
					break
				}
				if v = next; !errors.Is(v.err, store.ErrRevision) {
					return v
				}
			}
		}
		return v
	}
	var all []<-chan valued
	for range 4 {
		all = append(all, pending(counter))
	}
	for _, p := range all {
		k.ok((<-p).err, "a swap that is tried again from the revision that it was told")
	}
	k.valueStands(4*each, "revisions neither skip nor repeat: there is one for each change")
}

func valueTenants[TTx any](k *kit[TTx]) {
	k.moved(1)
	k.moved(2)
	mine := k.id
	k.id = k.foreign()
	k.valueStands(0, "a value of one tenant is none of another")
	v := k.swap(k.swapTo(2, "theirs"))
	k.refused(v.err, store.ErrRevision, "a swap of another tenant's value is ErrRevision")
	k.rule(v.Revision == 0, "and tells nothing of it", v)
	k.moved(1)
	k.id = mine
	k.valueStands(2, "each tenant has its own value of a name")
	k.moved(3)
}

func valueBytes[TTx any](k *kit[TTx]) {
	large := bytes.Repeat([]byte{0, 1, 255, '"'}, store.MaxValue/4)
	for i, content := range [][]byte{{}, {0}, []byte(`{"b": 1, "a": 1.0}`), {0xff, 0xfe}, large} {
		p := store.SwapParams{ValueID: store.ValueID{Tenant: k.id.Tenant, Name: "value " + fmt.Sprint(i)}, Content: content}
		v := k.swap(p)
		k.ok(v.err, "a value of any bytes")
		v = k.load(p.ValueID)
		k.rule(v.Revision == 1 && v.Content != nil && bytes.Equal(v.Content, content), "content comes back byte for byte", len(content), v.err)
	}
	p := store.SwapParams{ValueID: store.ValueID{Tenant: k.id.Tenant, Name: strings.Repeat("n", store.MaxValueName)}, Content: []byte("x")}
	k.ok(k.swap(p).err, "a value with the longest name")
	x := k.bare()
	content := []byte("mine")
	p = k.swapTo(0, "")
	p.Content = content
	v, err := x.values().Swap(k.ctx, p)
	k.ok(err, "a swap")
	content[0], v.Content[1] = 'x', 'x'
	v, err = x.values().Load(k.ctx, p.ValueID)
	k.ok(err, "a load")
	k.rule(string(v.Content) == "mine", "content shares no memory with the caller", v)
	x.commit(store.Closing{})
}

func valueLimits[TTx any](k *kit[TTx]) {
	long := strings.Repeat("n", store.MaxValueName+1)
	x := k.bare()
	for name, spoil := range map[string]func(p *store.SwapParams){
		"no name":             func(p *store.SwapParams) { p.Name = "" },
		"a long name":         func(p *store.SwapParams) { p.Name = long },
		"a name of two lines": func(p *store.SwapParams) { p.Name = "a\nb" },
		"no tenant":           func(p *store.SwapParams) { p.Tenant = "" },
		"a negative revision": func(p *store.SwapParams) { p.Revision = -1 },
		"no content":          func(p *store.SwapParams) { p.Content = nil },
		"large content":       func(p *store.SwapParams) { p.Content = make([]byte, store.MaxValue+1) },
	} {
		p := k.swapTo(0, "x")
		spoil(&p)
		_, err := x.values().Swap(k.ctx, p)
		k.refused(err, contract.ErrInvalid, "a swap with "+name+" is a *contract.InvalidError")
		if p.ValueID == k.epoch() {
			continue
		}
		_, err = x.values().Load(k.ctx, p.ValueID)
		k.refused(err, contract.ErrInvalid, "to load with "+name+" is a *contract.InvalidError")
		_, err = x.values().Hold(k.ctx, p.ValueID)
		k.refused(err, contract.ErrInvalid, "to hold with "+name+" is a *contract.InvalidError")
	}
	x.effect("effect")
	x.commit(store.Closing{})
	k.count("effect", 1, "a transaction is usable after parameters were refused")
	k.valueStands(0, "what is not valid is not stored")
}

func valueRollback[TTx any](k *kit[TTx]) {
	k.moved(1)
	x := k.bare()
	v, err := x.values().Swap(k.ctx, k.swapTo(1, "undone"))
	k.ok(err, "a swap")
	k.rule(v.Revision == 2, "a swap returns the next revision", v)
	v, err = x.values().Load(k.ctx, k.epoch())
	k.ok(err, "a load")
	k.rule(v.Revision == 2 && string(v.Content) == "undone", "a transaction sees what it swapped", v)
	x.effect("effect")
	x.rollback()
	k.valueStands(1, "a rollback leaves the value as it was")
	k.count("effect", 0, "a rollback leaves no effect")
	k.moved(2)
}

// valueCallers uses a transaction of the caller's own, bound to no tenant.
func valueCallers[TTx any](k *kit[TTx]) {
	k.moved(1)
	x := k.begin()
	in := k.Store.Values(x.tx)
	v, err := in.Hold(k.ctx, k.epoch())
	k.ok(err, "Hold in a caller's transaction")
	k.rule(v.Revision == 1, "Hold in a caller's transaction tells the value", v)
	_, err = in.Swap(k.ctx, k.swapTo(0, "stale"))
	k.refused(err, store.ErrRevision, "a swap from another revision is ErrRevision")
	v, err = in.Swap(k.ctx, k.swapTo(1, "epoch 2"))
	k.ok(err, "Swap in a caller's transaction, of a value that it holds, after a refusal")
	k.rule(v.Revision == 2, "a swap returns the next revision", v)
	k.ok(x.in.Propose(k.ctx, proposal(k.id)), "a proposal beside a value")
	x.effect("effect")
	x.commit()
	k.valueStands(2, "a commit leaves the value")
	k.count("effect", 1, "a transaction is usable after ErrRevision")
	k.rule(k.lookup().Proposal != nil, "values and claims share the transaction", k.lookup())
}

// valueIsolated undoes a swap with its item.
func valueIsolated[TTx any](k *kit[TTx]) {
	x := k.bare()
	_, err := k.Store.Isolate(k.ctx, x.tx, 2, func(i int, tx TTx) error {
		_, err := k.Store.Values(tx).Swap(k.ctx, k.swapTo(0, "epoch 1"))
		if i == 0 {
			return errors.Join(errors.New("the item fails"), err)
		}
		return err
	})
	k.ok(err, "Isolate")
	x.commit(store.Closing{})
	k.valueStands(1, "a swap is undone with its item, and kept with it")
}

func valueCancelled[TTx any](k *kit[TTx]) {
	k.moved(1)
	x := k.bare()
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	_, err := x.values().Swap(ctx, k.swapTo(1, "x"))
	k.rule(err != nil, "a swap with a context that has ended is an error", err)
	x.rollback()
	k.valueStands(1, "a swap with a context that has ended changes nothing")
}

// holderSeesMove holds a value while its change is not committed, which then ends in either way.
func holderSeesMove[TTx any](k *kit[TTx]) {
	k.moved(1)
	for _, commits := range []bool{false, true} {
		mover := k.bare()
		_, err := mover.values().Swap(k.ctx, k.swapTo(1, "epoch 2"))
		k.ok(err, "a swap")
		holder := k.blocked("Hold waits for a change that is under way", k.hold)
		want := valued{Value: store.Value{Revision: 1, Content: []byte("epoch 1")}}
		if commits {
			mover.commit(store.Closing{})
			want.Value = store.Value{Revision: 2, Content: []byte("epoch 2")}
		} else {
			mover.rollback()
		}
		v := <-holder
		k.rule(v.is(want.Revision, string(want.Content)), "Hold tells the value as it stands after the change that it waited for", v, want)
	}
}

// moverWaits changes a value while it is held.
func moverWaits[TTx any](k *kit[TTx]) {
	k.moved(1)
	for revision := int64(1); revision <= 2; revision++ {
		holder := k.bare()
		v, err := holder.values().Hold(k.ctx, k.epoch())
		k.ok(err, "Hold")
		k.rule(v.Revision == revision, "Hold tells the value", v)
		next := k.swapTo(revision, fmt.Sprint("epoch ", revision+1))
		mover := k.blocked("a change waits for whoever holds the value", func() valued { return k.swap(next) })
		holder.effect("effect")
		if revision == 1 {
			holder.commit(store.Closing{})
		} else {
			holder.rollback()
		}
		moved := <-mover
		k.rule(moved.Revision == revision+1 && moved.err == nil, "a change that waited is made once the value is let go", moved)
	}
	k.count("effect", 1, "a transaction that held a value commits")
	k.valueStands(3, "a change that waited is made once")
}

// makerWaits makes a value while another makes it.
func makerWaits[TTx any](k *kit[TTx]) {
	first := k.bare()
	_, err := first.values().Swap(k.ctx, k.swapTo(0, "epoch 1"))
	k.ok(err, "a swap that makes a value")
	second := k.blocked("to make a value waits for whoever makes it", func() valued { return k.swap(k.swapTo(0, "other")) })
	first.commit(store.Closing{})
	v := <-second
	k.refused(v.err, store.ErrRevision, "a value that has been made meanwhile is not made again")
	k.rule(v.Revision == 1 && string(v.Content) == "epoch 1", "and is returned", v)
}

// holdersSwap lets two transactions hold a value, if the store lets two, and then both change it.
func holdersSwap[TTx any](k *kit[TTx]) {
	k.moved(1)
	both := make(chan struct{}, 2)
	act := func() valued {
		return k.inValues(func(in store.Values) (store.Value, error) {
			v, err := in.Hold(k.ctx, k.epoch())
			if err != nil {
				return v, err
			}
			both <- struct{}{}
			for range 30 { // a store with one writer lets in one at a time
				if len(both) == 2 {
					break
				}
				time.Sleep(patience / 30)
			}
			return in.Swap(k.ctx, k.swapTo(v.Revision, fmt.Sprint("epoch ", v.Revision+1)))
		})
	}
	first, second := pending(act), pending(act)
	revision := int64(1)
	for _, v := range []valued{<-first, <-second} {
		if v.err == nil {
			revision++
			continue
		}
		k.rule(errors.Is(v.err, store.ErrRetryTx) || tooLong(v.err),
			"one of two that hold a value and change it is told ErrRetryTx or ErrLockTimeout", v)
	}
	k.valueStands(revision, "each change that was told as made is made, once")
}

// valueTimesOut waits for a value that is held, or changed, for longer than the lock timeout.
func valueTimesOut[TTx any](k *kit[TTx]) {
	k.moved(1)
	holder := k.bare()
	_, err := holder.values().Hold(k.ctx, k.epoch())
	k.ok(err, "Hold")
	const rule = "a swap waits no longer than the lock timeout, and says so"
	select {
	case v := <-pending(func() valued { return k.swap(k.swapTo(1, "x")) }):
		k.waited(v.err, rule)
	case <-time.After(10 * time.Second):
		k.rule(false, rule)
	}
	holder.rollback()
	k.valueStands(1, "a swap that ran into the lock timeout changes nothing")
	k.moved(2)
}
