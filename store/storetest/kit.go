package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

const (
	long  = time.Hour              // a lease or an expiry that no test outlives
	short = 20 * time.Millisecond  // one that a test lets pass
	past  = 2 * short              // what it lets pass
	brief = 500 * time.Millisecond // one within which a few calls are made
)

// kit is one subtest: its harness, a tenant and a fresh key, and the checks.
type kit[TTx any] struct {
	*testing.T
	Harness[TTx]
	ctx context.Context
	own store.Claims
	id  store.ID
}

func newKit[TTx any](t *testing.T, h Harness[TTx]) *kit[TTx] {
	t.Helper()
	k := &kit[TTx]{T: t, Harness: h, ctx: t.Context(), own: h.Store.Own()}
	k.id = newID()
	return k
}

func newID() store.ID { return store.ID{Tenant: "firm-" + uuid.NewString(), Key: uuid.New()} }

// digestOf is a digest that differs for different strings of up to 32 bytes.
func digestOf(s string) (d contract.Digest) {
	copy(d[:], s)
	return d
}

// rule fails the test unless holds, and says which rule is broken.
func (k *kit[TTx]) rule(holds bool, rule string, got ...any) {
	k.Helper()
	if !holds {
		k.Fatal("broken rule: " + rule + describe(got))
	}
}

// ok fails the test if err is not nil.
func (k *kit[TTx]) ok(err error, doing string) {
	k.Helper()
	if err != nil {
		k.Fatalf("broken rule: %s must succeed\n  got: %v%s", doing, err, cause(err))
	}
}

// refused fails the test unless err is a *store.Error of this kind.
func (k *kit[TTx]) refused(err, kind error, rule string) {
	k.Helper()
	k.rule(errors.Is(err, kind), rule, err)
	var se *store.Error
	k.rule(errors.As(err, &se), "every error of a store is a *store.Error", err)
}

// waited requires the refusal of a call that waited for somebody until the lock timeout.
func (k *kit[TTx]) waited(err error, rule string) {
	k.Helper()
	k.rule(tooLong(err), rule, err)
	var se *store.Error
	k.rule(errors.As(err, &se), "every error of a store is a *store.Error", err)
}

// tooLong says whether err is that of such a wait. A store with one writer cannot tell what that one holds, and must not say that it
// is the key.
func tooLong(err error) bool {
	return errors.Is(err, store.ErrLockTimeout) || errors.Is(err, store.ErrBusy)
}

func describe(got []any) string {
	var b strings.Builder
	for _, g := range got {
		fmt.Fprintf(&b, "\n  got: %s", show(g))
	}
	return b.String()
}

func show(v any) string {
	s, ok := v.(store.Standing)
	if !ok {
		return fmt.Sprintf("%+v", v)
	}
	p, c := "none", "none"
	if s.Proposal != nil {
		p = fmt.Sprintf("{digest %x, expired %t, content %.40q}",
			s.Proposal.Digest[:4], s.Proposal.Expired, s.Proposal.Content)
	}
	if s.Claim != nil {
		c = fmt.Sprintf("{digest %x, attempt %s, fence %d, mode %q, lease over %t, completed %t, unsettled %t, "+
			"outcomes %.40q, items %s, observations %s}",
			s.Claim.Digest[:4], s.Claim.Attempt, s.Claim.Fence, s.Claim.Mode, s.Claim.LeaseOver, s.Claim.Completed,
			s.Claim.Unsettled, s.Claim.Outcomes, items(s), observations(s))
	}
	return "proposal " + p + ", claim " + c
}

func cause(err error) string {
	var se *store.Error
	if errors.As(err, &se) && se.Cause != nil {
		return fmt.Sprintf("\n  cause: %v", se.Cause)
	}
	return ""
}

// items writes the item records of a claim in one line: `a="x" b started`.
func items(s store.Standing) string {
	if s.Claim == nil {
		return ""
	}
	var all []string
	for id, outcome := range s.Claim.Items {
		if outcome == nil {
			all = append(all, id+" started")
		} else {
			all = append(all, fmt.Sprintf("%s=%q", id, outcome))
		}
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

// observations writes the observations of a claim in one line, without their attempts: `a="x" b="y"`.
func observations(s store.Standing) string {
	if s.Claim == nil {
		return ""
	}
	var all []string
	for _, o := range s.Claim.Observations {
		all = append(all, fmt.Sprintf("%s=%q", o.Item, o.Outcome))
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

// propose records a proposal of digest "a" and content "content" that does not expire.
func (k *kit[TTx]) propose(id store.ID) {
	k.Helper()
	k.ok(k.own.Propose(k.ctx, proposal(id)), "a first proposal")
}

func proposal(id store.ID) store.ProposeParams {
	return store.ProposeParams{ID: id, Digest: digestOf("a"), Content: []byte("content"), Expiry: long}
}

// attempt is a new attempt's claim of digest "a" with a long lease.
func attempt(id store.ID) store.ClaimParams {
	return store.ClaimParams{
		ID: id, Digest: digestOf("a"), Attempt: uuid.New(), Mode: store.ModeExternalProgress, Lease: long,
	}
}

// claim makes the claim p, which must win, and returns its fence.
func (k *kit[TTx]) claim(c store.Claims, p store.ClaimParams) store.Fenced {
	k.Helper()
	s, err := c.Claim(k.ctx, p)
	k.ok(err, "a first claim")
	k.rule(won(s, p), "the first claim of a free key wins", s)
	k.rule(s.Claim.Fence > 0, "a claim's fence is never zero", s)
	return store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: s.Claim.Fence}
}

// claimed proposes and claims the kit's key.
func (k *kit[TTx]) claimed() store.Fenced {
	k.Helper()
	k.propose(k.id)
	return k.claim(k.own, attempt(k.id))
}

// abandoned proposes and claims the kit's key, and lets the lease end.
func (k *kit[TTx]) abandoned() store.Fenced {
	k.Helper()
	k.propose(k.id)
	p := attempt(k.id)
	p.Lease = short
	f := k.claim(k.own, p)
	k.Advance(past)
	return f
}

func won(s store.Standing, p store.ClaimParams) bool {
	return s.Claim != nil && s.Claim.Attempt == p.Attempt
}

// lookup reads the kit's key with everything that can be asked for but the barrier.
func (k *kit[TTx]) lookup() store.Standing {
	k.Helper()
	return k.lookupID(k.own, k.id)
}

func (k *kit[TTx]) lookupID(c store.Claims, id store.ID) store.Standing {
	k.Helper()
	s, err := c.Lookup(k.ctx, store.LookupParams{ID: id, Content: true})
	k.ok(err, "a lookup")
	return s
}

// unchanged fails the test unless the kit's key stands as before.
func (k *kit[TTx]) unchanged(before store.Standing, rule string) {
	k.Helper()
	after := k.lookup()
	k.rule(reflect.DeepEqual(before, after), rule, before, after)
}

// count fails the test unless n rows of that name are committed.
func (k *kit[TTx]) count(name string, n int, rule string) {
	k.Helper()
	got, err := k.Count(k.ctx, name)
	k.ok(err, "the harness's Count")
	k.rule(got == n, rule, fmt.Sprintf("%d rows named %q, want %d", got, name, n))
}

// txn is a caller's transaction. It is rolled back at the end of the test if the test did not end it.
type txn[TTx any] struct {
	k     *kit[TTx]
	tx    TTx
	in    store.Claims
	ended bool
}

func (k *kit[TTx]) begin() *txn[TTx] {
	k.Helper()
	tx, err := k.Begin(k.ctx)
	k.ok(err, "the harness's Begin")
	x := &txn[TTx]{k: k, tx: tx, in: k.Store.In(tx)}
	k.Cleanup(func() {
		if !x.ended {
			_ = k.Rollback(context.WithoutCancel(k.ctx), tx)
		}
	})
	return x
}

func (x *txn[TTx]) commit() {
	x.k.Helper()
	x.ended = true
	x.k.ok(x.k.Commit(x.k.ctx, x.tx), "the commit of a transaction that is usable")
}

func (x *txn[TTx]) rollback() {
	x.k.Helper()
	x.ended = true
	x.k.ok(x.k.Rollback(x.k.ctx, x.tx), "the rollback of a transaction")
}

func (x *txn[TTx]) effect(name string) {
	x.k.Helper()
	x.k.ok(x.k.Effect(x.k.ctx, x.tx, name), "an effect in a transaction that is usable")
}

// answer is what a call in another goroutine returned.
type answer struct {
	standing store.Standing
	err      error
}

// async runs call in a goroutine.
func async(call func() (store.Standing, error)) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		s, err := call()
		done <- answer{s, err}
	}()
	return done
}

// race runs call n times at once and returns every answer.
func race(n int, call func(i int) (store.Standing, error)) []answer {
	start := make(chan struct{})
	var pending []<-chan answer
	for i := range n {
		pending = append(pending, async(func() (store.Standing, error) {
			<-start
			return call(i)
		}))
	}
	close(start)
	var all []answer
	for _, p := range pending {
		all = append(all, <-p)
	}
	return all
}
