package storetest_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// valueFault is one way of breaking values or guards.
type valueFault struct {
	holdsNothing  bool // Hold reads without a lock, or with one that changes pass by, such as FOR KEY SHARE
	holdsSnapshot bool // Hold waits, and then tells what its transaction saw when it began
	comparesNot   bool // Swap takes any revision
	comparesEarly bool // Swap compares before it waits for the lock
	reuses        bool // Swap gives the standing revision again when the content is the same
	skips         bool // a revision is given away also by a swap that is rolled back
	tellsNothing  bool // a refused swap returns no value
	tenantless    bool // a value's place is its name
	commitsAlone  bool // Swap does not wait for the end of its transaction
	text          bool // content is text
	longNames     bool // a name is cut at the limit
	foreverWaits  bool // no lock timeout

	guardUnlocked  bool // a guard is checked without a lock
	guardBefore    bool // a guard is checked in a transaction before the claim's
	guardAfter     bool // a guard is checked when the claim is committed
	guardIgnored   bool // no guard is checked
	guardZero      bool // revision 0 means any
	guardFirstOnly bool // of several guards one is checked
	guardOfFree    bool // a guard is checked only of a key that is free
	guardTenant    bool // a guard is met by any tenant's value
}

// rows is a store of values with row locks, which a memstore has not: it stands beside one, so that faults of locks can be planted.
type rows struct {
	valueFault
	mu        sync.Mutex
	committed map[store.ValueID]store.Value
	holders   map[store.ValueID][]*memstore.Tx
	changer   map[store.ValueID]*memstore.Tx
	txs       map[*memstore.Tx]*rowTx
	lent      map[*memstore.Tx]*memstore.Tx // whose an item's handle is
	given     map[store.ValueID]int64
}

// rowTx is what a transaction has changed and seen.
type rowTx struct {
	began, written map[store.ValueID]store.Value
}

func newRows(f valueFault) *rows {
	return &rows{valueFault: f, committed: map[store.ValueID]store.Value{}, holders: map[store.ValueID][]*memstore.Tx{},
		changer: map[store.ValueID]*memstore.Tx{}, txs: map[*memstore.Tx]*rowTx{}, given: map[store.ValueID]int64{},
		lent: map[*memstore.Tx]*memstore.Tx{}}
}

// begin makes tx one of rows' own, under r.mu.
func (r *rows) begin(tx *memstore.Tx) *rowTx {
	if owner, lent := r.lent[tx]; lent {
		tx = owner
	}
	t, known := r.txs[tx]
	if !known {
		t = &rowTx{began: map[store.ValueID]store.Value{}, written: map[store.ValueID]store.Value{}}
		maps.Copy(t.began, r.committed)
		r.txs[tx] = t
	}
	return t
}

// end lets go of everything that tx holds, and keeps what it has changed if it commits.
func (r *rows) end(tx *memstore.Tx, commits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.txs[tx]
	if t == nil {
		return
	}
	delete(r.txs, tx)
	for id, v := range t.written {
		if commits {
			r.committed[id] = v
		}
	}
	for id := range r.changer {
		if r.changer[id] == tx {
			delete(r.changer, id)
		}
	}
	for id := range r.holders {
		r.holders[id] = slices.DeleteFunc(r.holders[id], func(h *memstore.Tx) bool { return h == tx })
	}
}

// lock waits until nobody else has the value locked against tx, and then calls got, under r.mu.
func (r *rows) lock(ctx context.Context, tx *memstore.Tx, id store.ValueID, exclusive bool, got func(t *rowTx)) error {
	wait := time.Second
	if r.foreverWaits {
		wait = time.Hour
	}
	for until := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return &store.Error{Op: "rows", Cause: err}
		}
		r.mu.Lock()
		if owner, lent := r.lent[tx]; lent {
			tx = owner
		}
		others := slices.ContainsFunc(r.holders[id], func(h *memstore.Tx) bool { return h != tx })
		if c := r.changer[id]; (c == nil || c == tx) && (!exclusive || !others) {
			if exclusive {
				r.changer[id] = tx
			} else {
				r.holders[id] = append(r.holders[id], tx)
			}
			got(r.begin(tx))
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		if time.Now().After(until) {
			return &store.Error{Op: "rows", Kind: store.ErrLockTimeout}
		}
	}
}

// place is where a value is kept.
func (r *rows) place(id store.ValueID) store.ValueID {
	if r.tenantless {
		id.Tenant = ""
	}
	return id
}

func (r *rows) sees(t *rowTx, id store.ValueID) store.Value {
	v, written := t.written[id]
	if !written {
		v = r.committed[id]
	}
	if v.Content != nil {
		v.Content = append([]byte{}, v.Content...)
	}
	return v
}

// rowValues are the values of a transaction.
type rowValues struct {
	r  *rows
	tx *memstore.Tx
}

func (v rowValues) Load(_ context.Context, id store.ValueID) (store.Value, error) {
	if err := id.Validate(); err != nil {
		return store.Value{}, &store.Error{Op: "rows", Kind: err}
	}
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	return v.r.sees(v.r.begin(v.tx), v.r.place(id)), nil
}

func (v rowValues) Hold(ctx context.Context, id store.ValueID) (val store.Value, err error) {
	if v.r.holdsNothing || id.Validate() != nil {
		return v.Load(ctx, id)
	}
	id = v.r.place(id)
	err = v.r.lock(ctx, v.tx, id, false, func(t *rowTx) {
		val = v.r.sees(t, id)
		if old, had := t.began[id]; had && v.r.holdsSnapshot {
			val = old
		}
	})
	return val, err
}

func (v rowValues) Swap(ctx context.Context, p store.SwapParams) (val store.Value, err error) {
	if v.r.longNames && len(p.Name) > store.MaxValueName {
		p.Name = p.Name[:store.MaxValueName]
	}
	if err := p.Validate(); err != nil {
		return val, &store.Error{Op: "rows", Kind: err}
	}
	id := v.r.place(p.ValueID)
	before, _ := v.Load(ctx, p.ValueID)
	refused := false
	err = v.r.lock(ctx, v.tx, id, !v.r.commitsAlone, func(t *rowTx) {
		val = v.r.sees(t, id)
		if !v.r.comparesEarly {
			before = val
		}
		if refused = before.Revision != p.Revision && !v.r.comparesNot; refused {
			return
		}
		val = v.r.next(id, val, p)
		t.written[id] = val
		if v.r.commitsAlone {
			v.r.committed[id] = val
		}
		val = v.r.sees(t, id)
	})
	if err == nil && refused {
		if v.r.tellsNothing {
			val = store.Value{}
		}
		err = &store.Error{Op: "rows", Kind: store.ErrRevision}
	}
	return val, err
}

func (r *rows) next(id store.ValueID, stands store.Value, p store.SwapParams) store.Value {
	content := append([]byte{}, p.Content...)
	if r.text {
		content = bytes.ToValidUTF8(content, []byte("?"))
	}
	revision := stands.Revision + 1
	if r.reuses && bytes.Equal(stands.Content, p.Content) && stands.Revision > 0 {
		revision--
	}
	if r.skips {
		revision = max(revision, r.given[id]+1)
	}
	r.given[id] = revision
	return store.Value{Revision: revision, Content: content}
}

// meet checks guards in tx, under the faults that there are.
func (r *rows) meet(ctx context.Context, tx *memstore.Tx, tenant string, guards []store.Guard) error {
	if r.guardZero {
		guards = slices.DeleteFunc(slices.Clone(guards), func(g store.Guard) bool { return g.Revision == 0 })
	}
	if err := store.ValidateGuards(guards); err != nil {
		return &store.Error{Op: "rows", Kind: err}
	}
	if r.guardIgnored {
		return nil
	}
	if r.guardFirstOnly && len(guards) > 1 {
		guards = guards[:1]
	}
	values := rowValues{r, tx}
	for _, g := range guards {
		id := store.ValueID{Tenant: tenant, Name: g.Name}
		if r.guardTenant {
			id = r.anybodys(id)
		}
		v, err := values.Load(ctx, id)
		if !r.guardUnlocked && err == nil {
			v, err = values.Hold(ctx, id)
		}
		if err != nil {
			return err
		}
		if v.Revision != g.Revision {
			return &store.Error{Op: "rows", Kind: store.ErrGuard}
		}
	}
	return nil
}

// anybodys is a value of this name, whoever's.
func (r *rows) anybodys(id store.ValueID) store.ValueID {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.committed {
		if other.Name == id.Name {
			return other
		}
	}
	return id
}

// rowStore is a memstore whose values are rows.
type rowStore struct {
	*memstore.Store
	rows *rows
}

func (s rowStore) Values(tx *memstore.Tx) store.Values { return rowValues{s.rows, tx} }

func (s rowStore) Own() store.Claims { return rowClaims{s.Store.Own(), s, nil} }

func (s rowStore) In(tx *memstore.Tx) store.Claims { return rowClaims{s.Store.In(tx), s, tx} }

// Begin begins a transaction that touches no claim on a store of its own, so that it waits for nobody.
func (s rowStore) Begin(ctx context.Context, o store.Opening) (tx *memstore.Tx, standing store.Standing, err error) {
	if o.Claim == nil && o.Hold == nil {
		tx, standing, err = memstore.New(nil).Begin(ctx, o)
		if err == nil {
			s.rows.mu.Lock()
			s.rows.begin(tx)
			s.rows.mu.Unlock()
		}
		return tx, standing, err
	}
	guards := slices.Clone(o.Guards)
	if o.Claim != nil {
		claim := *o.Claim
		guards, claim.Guards = append(guards, claim.Guards...), nil
		o.Claim = &claim
	}
	o.Guards = nil
	holder := &memstore.Tx{} // takes the locks until there is the transaction itself
	if err = s.rows.meet(ctx, holder, o.Tenant, guards); err == nil {
		if s.rows.guardBefore {
			s.rows.end(holder, false)
		}
		tx, standing, err = s.Store.Begin(ctx, o)
	}
	if err != nil {
		s.rows.end(holder, false)
		return nil, store.Standing{}, err
	}
	s.rows.give(holder, tx)
	return tx, standing, nil
}

// give makes the locks of one transaction another's.
func (r *rows) give(from, to *memstore.Tx) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(to)
	delete(r.txs, from)
	for id := range r.holders {
		for i, h := range r.holders[id] {
			if h == from {
				r.holders[id][i] = to
			}
		}
	}
}

func (s rowStore) Commit(ctx context.Context, tx *memstore.Tx, c store.Closing) error {
	err := s.Store.Commit(ctx, tx, c)
	s.rows.end(tx, err == nil)
	return err
}

func (s rowStore) Rollback(ctx context.Context, tx *memstore.Tx) error {
	defer s.rows.end(tx, false)
	return s.Store.Rollback(ctx, tx)
}

// Isolate undoes values with their item.
func (s rowStore) Isolate(ctx context.Context, tx *memstore.Tx, n int, fn func(int, *memstore.Tx) error) ([]error, error) {
	return s.Store.Isolate(ctx, tx, n, func(i int, lent *memstore.Tx) error {
		s.rows.mu.Lock()
		t := s.rows.begin(tx)
		s.rows.lent[lent] = tx
		before := maps.Clone(t.written)
		s.rows.mu.Unlock()
		err := fn(i, lent)
		s.rows.mu.Lock()
		defer s.rows.mu.Unlock()
		delete(s.rows.lent, lent)
		if err != nil {
			t.written = before
		}
		return err
	})
}

// rowClaims are claims whose guards are rows.
type rowClaims struct {
	store.Claims
	s  rowStore
	tx *memstore.Tx // nil: of its own
}

// guarded runs call under guards, with their locks until it or its transaction ends.
func (c rowClaims) guarded(ctx context.Context, id store.ID, guards []store.Guard, call func() (store.Standing, error),
) (s store.Standing, err error) {
	if len(guards) == 0 {
		return call()
	}
	if c.s.rows.guardOfFree {
		if s, err := c.Claims.Lookup(ctx, store.LookupParams{ID: id}); err != nil || s.Claim != nil {
			return s, err
		}
	}
	tx := c.tx
	if tx == nil || c.s.rows.guardBefore {
		tx = &memstore.Tx{}
		defer c.s.rows.end(tx, false)
	}
	if c.s.rows.guardAfter {
		if s, err = call(); err == nil {
			err = c.s.rows.meet(ctx, tx, id.Tenant, guards)
		}
		return s, err
	}
	if err := c.s.rows.meet(ctx, tx, id.Tenant, guards); err != nil {
		return s, err
	}
	return call()
}

func (c rowClaims) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	guards := p.Guards
	p.Guards = nil
	return c.guarded(ctx, p.ID, guards, func() (store.Standing, error) { return c.Claims.Claim(ctx, p) })
}

func (c rowClaims) Lookup(ctx context.Context, p store.LookupParams) (store.Standing, error) {
	guards := p.Guards
	p.Guards = nil
	return c.guarded(ctx, p.ID, guards, func() (store.Standing, error) { return c.Claims.Lookup(ctx, p) })
}
