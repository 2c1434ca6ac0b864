// Package toy is a store of one's own, as a sibling repository may write one: in memory, for the example's sake. A transaction is a
// copy of everything, and only one is open at a time. What makes it a store that the broker can be trusted with is that it passes
// the library's suite.
package toy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

// Store is the toy. Make one with New.
type Store struct {
	now     func() time.Time
	timeout time.Duration
	writer  chan struct{} // holds a token while a transaction is open

	mu        sync.Mutex
	committed *state
}

var _ store.Store[*Tx] = (*Store)(nil)

// New returns an empty store with a clock of its own, whose calls wait for its only writer no longer than the timeout.
func New(now func() time.Time, timeout time.Duration) *Store {
	return &Store{now: now, timeout: timeout, writer: make(chan struct{}, 1), committed: (&state{}).clone()}
}

// state is everything that is stored. Effects are what executors write.
type state struct {
	keys    map[store.ID]*key
	values  map[store.ValueID]store.Value
	effects map[string]int
}

type key struct {
	proposal *proposal
	claim    *claim
}

type proposal struct {
	store.Proposal
	expires time.Time
}

type claim struct {
	store.Claim
	made, leaseEnds, settled time.Time
}

func (s *state) clone() *state {
	c := &state{map[store.ID]*key{}, maps.Clone(s.values), maps.Clone(s.effects)}
	if c.values == nil {
		c.values, c.effects = map[store.ValueID]store.Value{}, map[string]int{}
	}
	for id, k := range s.keys {
		c.keys[id] = k.clone()
	}
	return c
}

func (k *key) clone() *key {
	c := &key{}
	if k.proposal != nil {
		p := *k.proposal
		c.proposal = &p
	}
	if k.claim != nil {
		cl := *k.claim
		cl.Items, cl.Observations = maps.Clone(cl.Items), slices.Clone(cl.Observations)
		c.claim = &cl
	}
	return c
}

func (s *state) key(id store.ID) *key {
	if s.keys[id] == nil {
		s.keys[id] = &key{}
	}
	return s.keys[id]
}

// Tx is a transaction: a copy that takes the place of what is committed.
type Tx struct {
	*body
	lent, made bool // made: by Store.Begin
}

type body struct {
	store *Store
	state *state
	ended bool
}

var errNotYours = errors.New("toy: the transaction is not yours to end")

// Effect counts one effect of an executor, in the transaction.
func (tx *Tx) Effect(name string) { tx.state.effects[name]++ }

// Effects tells how many of a name are committed.
func (s *Store) Effects(name string) int { return s.read().effects[name] }

func (s *Store) read() *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed
}

// BeginTx begins a transaction of the caller's own.
func (s *Store) BeginTx(ctx context.Context) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault("begin", nil, err)
	}
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case s.writer <- struct{}{}:
		return &Tx{body: &body{store: s, state: s.read().clone()}}, nil
	case <-ctx.Done():
		return nil, fault("begin", store.ErrLockTimeout, ctx.Err())
	case <-timer.C:
		return nil, fault("begin", store.ErrLockTimeout, nil)
	}
}

// Commit ends a transaction that the caller began.
func (tx *Tx) Commit() error {
	if tx.lent {
		return errNotYours
	}
	return tx.end(true)
}

// Rollback ends a transaction that the caller began, and leaves nothing of it.
func (tx *Tx) Rollback() error {
	if tx.lent {
		return errNotYours
	}
	return tx.end(false)
}

func (b *body) end(commit bool) error {
	if b.ended {
		return fault("end", store.ErrTxEnded, nil)
	}
	b.ended = true
	if commit {
		b.store.mu.Lock()
		b.store.committed = b.state
		b.store.mu.Unlock()
	}
	<-b.store.writer
	return nil
}

// Begin begins a transaction with its first statement.
func (s *Store) Begin(ctx context.Context, o store.Opening) (*Tx, store.Standing, error) {
	tx, err := s.BeginTx(ctx)
	if err != nil {
		return nil, store.Standing{}, err
	}
	standing, err := claims{tx}.open(context.WithoutCancel(ctx), o)
	if err != nil {
		return nil, standing, errors.Join(err, tx.end(false))
	}
	tx.lent, tx.made = true, true
	return tx, standing, nil
}

func (c claims) open(ctx context.Context, o store.Opening) (s store.Standing, err error) {
	if err := c.meet(o.Tenant, o.Guards); err != nil {
		return s, err
	}
	if o.Claim != nil {
		s, err = c.Claim(ctx, *o.Claim)
	}
	if err == nil && o.Hold != nil && !c.tx.state.key(o.Hold.ID).holds(*o.Hold) {
		err = fault("begin", store.ErrFenced, nil)
	}
	return s, err
}

// Commit commits a transaction that Begin made, with what c writes.
func (s *Store) Commit(ctx context.Context, tx *Tx, c store.Closing) error {
	if err := tx.mayEnd(); err != nil {
		return err
	}
	in, err := claims{tx}, error(nil)
	if p := c.Progress; p != nil {
		err = in.commit(context.WithoutCancel(ctx), *p)
	}
	if p := c.Complete; p != nil && err == nil {
		err = in.Complete(context.WithoutCancel(ctx), *p)
	}
	if err != nil {
		return errors.Join(fault("commit", store.ErrNotCommitted, err), tx.end(false))
	}
	return tx.end(true)
}

// Rollback ends a transaction that Begin made.
func (s *Store) Rollback(_ context.Context, tx *Tx) error {
	if err := tx.mayEnd(); err != nil {
		return err
	}
	return tx.end(false)
}

func (tx *Tx) mayEnd() error {
	switch {
	case !tx.made:
		return fault("end", nil, errNotYours)
	case tx.ended:
		return fault("end", store.ErrTxEnded, nil)
	}
	return nil
}

// Retryable knows no serialization failure but one that an executor makes up.
func (s *Store) Retryable(_ *Tx, err error) bool { return errors.Is(err, store.ErrRetryTx) }

// Isolate goes back to a copy for each item that fails.
func (s *Store) Isolate(_ context.Context, tx *Tx, n int, fn func(i int, tx *Tx) error) ([]error, error) {
	undone := make([]error, n)
	for i := range n {
		if tx.ended {
			return nil, fault("isolate", store.ErrTxEnded, nil)
		}
		before := tx.state.clone()
		err := fn(i, &Tx{body: tx.body, lent: true})
		switch {
		case tx.ended:
			return nil, fault("isolate", store.ErrTxEnded, err)
		case errors.Is(err, store.ErrRetryTx):
			return nil, fault("isolate", store.ErrRetryTx, err)
		case err != nil:
			tx.state = before
		}
		undone[i] = err
	}
	return undone, nil
}

func fault(op string, kind, cause error) error {
	return &store.Error{Op: "toy: " + op, Kind: kind, Cause: cause}
}

func clone(b []byte) []byte { return append([]byte{}, b...) }

// told copies bytes for a reader; nil says that there are none.
func told(b []byte) []byte { return slices.Clone(b) }

// standing tells a key to a caller, who gets copies.
func (k *key) standing(now time.Time, content bool) (s store.Standing) {
	k = k.clone()
	if k.proposal != nil {
		p := k.proposal.Proposal
		p.Expired, p.Content = k.proposal.expired(now), told(p.Content)
		if !content {
			p.Content = nil
		}
		s.Proposal = &p
	}
	if k.claim != nil {
		s.Claim = k.claim.told(now, content)
	}
	return s
}

func (c *claim) told(now time.Time, content bool) *store.Claim {
	t := c.Claim
	t.LeaseOver, t.Outcomes, t.Content = c.leaseOver(now), told(t.Outcomes), told(t.Content)
	for i := range t.Observations {
		t.Observations[i].Outcome = told(t.Observations[i].Outcome)
	}
	for id, outcome := range t.Items {
		t.Items[id] = told(outcome)
	}
	if !content {
		t.Content, t.Observations = nil, nil
	}
	if t.Completed {
		t.Items = nil
	} else if t.Items == nil {
		t.Items = map[string][]byte{}
	}
	return &t
}

func (p *proposal) expired(now time.Time) bool { return !now.Before(p.expires) }

func (c *claim) leaseOver(now time.Time) bool { return !now.Before(c.leaseEnds) }

// has says whether the claim is the attempt's, under this fence.
func (k *key) has(attempt uuid.UUID, fence int64) bool {
	return k.claim != nil && k.claim.Attempt == attempt && k.claim.Fence == fence
}

func (k *key) holds(f store.Fenced) bool { return k.has(f.Attempt, f.Fence) && !k.claim.Completed }

// free says whether the proposal, or its absence, lets the key be claimed.
func (k *key) free(now time.Time, p store.ClaimParams) bool {
	if k.claim != nil || k.proposal == nil {
		return k.claim == nil && p.AcceptUnminted
	}
	return k.proposal.Digest == p.Digest && (p.Outcomes != nil || !k.proposal.expired(now))
}
