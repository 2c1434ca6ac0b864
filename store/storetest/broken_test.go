package storetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// fault is one way of breaking a store.
type fault struct {
	patch     patch
	isolate   func(ctx context.Context, s *memstore.Store, tx *memstore.Tx, n int, fn func(int, *memstore.Tx) error) ([]error, error)
	forgetsTx bool // In writes on a connection of the store's own
	values    *valueFault

	handleEnds bool // Begin lends a handle that ends, and Rollback does not notice it
}

// patch changes what claims do. A call without a patch is passed on; with one it gets the unbroken claims to go on with.
type patch struct {
	propose  func(context.Context, store.Claims, store.ProposeParams) error
	claim    func(context.Context, store.Claims, store.ClaimParams) (store.Standing, error)
	lookup   func(context.Context, store.Claims, store.LookupParams) (store.Standing, error)
	progress func(context.Context, store.Claims, store.ProgressParams) error
	complete func(context.Context, store.Claims, store.CompleteParams) error
	tell     func(id store.ID, s *store.Standing) // changes every answer of claim and lookup
}

func (p patch) of(next store.Claims) store.Claims { return patched{next, p} }

type patched struct {
	next  store.Claims
	patch patch
}

func (c patched) Propose(ctx context.Context, p store.ProposeParams) error {
	if c.patch.propose != nil {
		return c.patch.propose(ctx, c.next, p)
	}
	return c.next.Propose(ctx, p)
}

func (c patched) Claim(ctx context.Context, p store.ClaimParams) (s store.Standing, err error) {
	if c.patch.claim != nil {
		s, err = c.patch.claim(ctx, c.next, p)
	} else {
		s, err = c.next.Claim(ctx, p)
	}
	return c.told(p.ID, s), err
}

func (c patched) Lookup(ctx context.Context, p store.LookupParams) (s store.Standing, err error) {
	if c.patch.lookup != nil {
		s, err = c.patch.lookup(ctx, c.next, p)
	} else {
		s, err = c.next.Lookup(ctx, p)
	}
	return c.told(p.ID, s), err
}

func (c patched) told(id store.ID, s store.Standing) store.Standing {
	if c.patch.tell != nil {
		c.patch.tell(id, &s)
	}
	return s
}

func (c patched) Progress(ctx context.Context, p store.ProgressParams) error {
	if c.patch.progress != nil {
		return c.patch.progress(ctx, c.next, p)
	}
	return c.next.Progress(ctx, p)
}

func (c patched) Complete(ctx context.Context, p store.CompleteParams) error {
	if c.patch.complete != nil {
		return c.patch.complete(ctx, c.next, p)
	}
	return c.next.Complete(ctx, p)
}

// claiming is a fault of the parameters of Claim.
func claiming(spoil func(p *store.ClaimParams)) func() fault {
	return func() fault {
		return fault{patch: patch{claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
			spoil(&p)
			return next.Claim(ctx, p)
		}}}
	}
}

// losing is a fault of what a claim that lost is told.
func losing(spoil func(p store.ClaimParams, c *store.Claim)) func() fault {
	return func() fault {
		return fault{patch: patch{claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
			s, err := next.Claim(ctx, p)
			if s.Claim != nil && s.Claim.Attempt != p.Attempt {
				spoil(p, s.Claim)
			}
			return s, err
		}}}
	}
}

// telling is a fault of what is told of a claim.
func telling(spoil func(c *store.Claim)) func() fault {
	return func() fault {
		return fault{patch: patch{tell: func(_ store.ID, s *store.Standing) {
			if s.Claim != nil {
				spoil(s.Claim)
			}
		}}}
	}
}

// looking is a fault of the parameters of Lookup.
func looking(spoil func(p *store.LookupParams)) func() fault {
	return func() fault {
		return fault{patch: patch{lookup: func(ctx context.Context, next store.Claims, p store.LookupParams) (store.Standing, error) {
			spoil(&p)
			return next.Lookup(ctx, p)
		}}}
	}
}

// completing is a fault of the parameters of Complete.
func completing(spoil func(p *store.CompleteParams)) func() fault {
	return func() fault {
		return fault{patch: patch{complete: func(ctx context.Context, next store.Claims, p store.CompleteParams) error {
			spoil(&p)
			return next.Complete(ctx, p)
		}}}
	}
}

// notes is what a broken store remembers beside the memstore under it.
type notes[V any] struct {
	mu sync.Mutex
	m  map[store.ID]V
}

func (n *notes[V]) set(id store.ID, v V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = map[store.ID]V{}
	}
	n.m[id] = v
}

func (n *notes[V]) get(id store.ID) (V, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.m[id]
	return v, ok
}

// anyTenant is the place of a key in notes that ignore the tenant.
func anyTenant(id store.ID) store.ID { return store.ID{Key: id.Key} }

// faults are the broken stores, and the case that must find each.
var faults = map[string]struct {
	fault func() fault
	found string
}{
	"every claim wins": {
		losing(func(p store.ClaimParams, c *store.Claim) { c.Attempt = p.Attempt }),
		"S12 the second claim sees the first",
	},
	"a claim is read in the snapshot from before its wait": {oldSnapshot, "S12 a claim waits for one that is under way"},
	"a claim does not wait for one that is under way":      {noWait, "S12 a claim waits for one that is under way"},
	"a claim that loses starts its first item":             {loserStarts, "S12 the second claim sees the first"},
	"the fence is always zero": {
		telling(func(c *store.Claim) { c.Fence = 0 }), "S12 the first claim wins",
	},
	"the mode is forgotten": {
		claiming(func(p *store.ClaimParams) { p.Mode = store.ModeExternal }), "the mode is stored",
	},
	"the first item is forgotten": {
		claiming(func(p *store.ClaimParams) { p.FirstItem = "" }), "S14 the first item is recorded as started",
	},
	"outcomes do not complete the claim": {
		claiming(func(p *store.ClaimParams) { p.Outcomes = nil }), "S29 a claim with outcomes is completed at once",
	},
	"a cancelled context is ignored": {ignoresCancel, "a cancelled context claims nothing"},
	"unminted keys are taken": {
		claiming(func(p *store.ClaimParams) { p.AcceptUnminted = true }), "S11 a key without a proposal is not claimed",
	},
	"a second proposal is told that it is recorded": {acceptsDuplicates, "S20 a second proposal changes nothing"},

	"the digest is not compared on the fast path": {noDigest, "S20 other content is not claimed"},
	"a claim that loses is told its own digest": {
		losing(func(p store.ClaimParams, c *store.Claim) { c.Digest = p.Digest }), "S20 the digest outlives the completion",
	},
	"completion replaces the digest": {
		telling(func(c *store.Claim) {
			if c.Completed {
				c.Digest = contract.Digest{}
			}
		}), "S20 the digest outlives the completion",
	},

	"expiry on the process's clock": {processExpiry, "S31 a proposal expires on the database clock"},
	"leases on the process's clock": {processLease, "S14 a claim whose lease is over stands"},
	"leases in whole seconds": {
		claiming(func(p *store.ClaimParams) {
			p.Lease = time.Duration(math.Ceil(p.Lease.Seconds())) * time.Second
		}), "S31 a lease is shorter than a second",
	},
	"progress does not renew the lease": {
		progressing(func(p *store.ProgressParams) { p.Lease = 0 }), "S31 progress renews the lease",
	},
	"the end of a lease frees the key": {
		losing(func(p store.ClaimParams, c *store.Claim) {
			if c.LeaseOver && !c.Completed {
				c.Attempt, c.Fence = p.Attempt, c.Fence+1
			}
		}), "S14 a claim whose lease is over stands",
	},
	"a claim is deleted after a failure": {freedByFailure, "S21 completion is fenced"},

	"completion without the fence":     {unfencedComplete, "S21 completion is fenced"},
	"progress without the fence":       {unfencedProgress, "S21 progress is fenced"},
	"a completion is overwritten":      {overwritesCompletion, "S17 a completion is never overwritten"},
	"an item's outcome is overwritten": {overwritesItem(true, false), "S17 an item's outcome is never overwritten"},
	"an item's outcome is taken away by Next": {
		overwritesItem(false, true), "S17 an item's outcome is never overwritten",
	},
	"an empty outcome is none": {
		telling(func(c *store.Claim) {
			for id, outcome := range c.Items {
				if len(outcome) == 0 {
					c.Items[id] = nil
				}
			}
		}), "S17 an empty outcome is an outcome",
	},
	"outcomes are re-encoded as JSON": {completing(reencode), "S17 outcomes come back byte for byte"},
	"outcomes are stored as text": {
		completing(func(p *store.CompleteParams) {
			p.Outcomes = []byte(strings.ToValidUTF8(string(p.Outcomes), "\ufffd"))
		}), "S17 outcomes come back byte for byte",
	},

	"the barrier does not wait": {
		looking(func(p *store.LookupParams) { p.Barrier = false }), "S19 the barrier sees a claim that commits",
	},
	"the barrier leaves its probe": {leavesProbe, "S19 the barrier leaves no trace"},
	"content is shown unasked": {
		looking(func(p *store.LookupParams) { p.Content = true }), "lookup shows content only when it is asked to",
	},
	"answers share memory with the caller": {sharesMemory, "lookup returns copies"},
	"a lock timeout has no kind":           {losesKind, "S28a a wait ends with the lock timeout"},

	"tenants are ignored":                        {oneTenant, "S16 another tenant's key looks absent"},
	"the conflict target lacks the tenant":       {tenantlessTarget, "S16 a key string in two tenants is two keys"},
	"completion ignores the tenant":              {tenantlessComplete, "S16 another tenant's claim is fenced"},
	"a proposal counts for every tenant":         {tenantlessProposal, "S16 another tenant's proposal is no proposal"},
	"In commits by itself":                       {func() fault { return fault{forgetsTx: true} }, "S28a rollback leaves neither claim nor effect"},
	"Isolate keeps the writes of a failed item":  {keepsAll, "S15 Isolate undoes the item that fails"},
	"Isolate stops at the first item that fails": {stopsAtFailure, "S15 Isolate undoes the item that fails"},
	"Isolate swallows ErrRetryTx":                {swallowsRetry, "Isolate stops at ErrRetryTx"},
	"Isolate swallows a panic":                   {swallowsPanic, "Isolate lets a panic pass"},
	"Isolate lends a handle that ends":           {lendsOwners, "Isolate notices or refuses an executor's commit"},
	"Rollback notices no commit":                 {func() fault { return fault{handleEnds: true} }, "Begin's transaction is not ended by its handle"},

	"Hold takes no lock, or one that changes pass by": {
		valuing(valueFault{holdsNothing: true}), "R118 Hold waits for a change under way",
	},
	"Hold's lock keeps no change out":            {valuing(valueFault{holdsNothing: true}), "R118 a change waits for whoever holds"},
	"Hold tells what stood before its wait":      {valuing(valueFault{holdsSnapshot: true}), "R118 Hold waits for a change under way"},
	"Swap does not compare":                      {valuing(valueFault{comparesNot: true}), "R112 a swap from another revision tells what stands"},
	"Swap compares before its wait":              {valuing(valueFault{comparesEarly: true}), "R41 to make a value waits for whoever makes it"},
	"Swap to the same content is none":           {valuing(valueFault{reuses: true}), "R113 a swap makes the next revision"},
	"a swap that is rolled back uses a revision": {valuing(valueFault{skips: true}), "S28a a rollback leaves the value as it was"},
	"a refused swap tells nothing":               {valuing(valueFault{tellsNothing: true}), "R112 a swap from another revision tells what stands"},
	"values without the tenant":                  {valuing(valueFault{tenantless: true}), "S16 tenants do not share values"},
	"Swap commits by itself":                     {valuing(valueFault{commitsAlone: true}), "S28a a rollback leaves the value as it was"},
	"content is stored as text":                  {valuing(valueFault{text: true}), "S17 a value's content comes back byte for byte"},
	"a long name is cut":                         {valuing(valueFault{longNames: true}), "S11 what no value may be is refused"},
	"Swap waits without a bound":                 {valuing(valueFault{foreverWaits: true}), "S28a a swap waits no longer than the lock timeout"},

	"guards are not checked":                         {valuing(valueFault{guardIgnored: true}), "R112 a claim whose guard is not met is refused"},
	"a guard is checked without a lock":              {valuing(valueFault{guardUnlocked: true}), "R118 a claim waits for a change of its guard"},
	"a guard's lock ends before the claim's commit":  {valuing(valueFault{guardBefore: true}), "R118 a change waits for the claim that it guards"},
	"a guard is checked after the claim's commit":    {valuing(valueFault{guardAfter: true}), "R112 a claim whose guard is not met is refused"},
	"a guard of revision 0 is met by any":            {valuing(valueFault{guardZero: true}), "S11 guards that cannot be checked are refused"},
	"of several guards one is checked":               {valuing(valueFault{guardFirstOnly: true}), "R112 a claim whose guard is not met is refused"},
	"a guard is checked only of a key that is free":  {valuing(valueFault{guardOfFree: true}), "R121 a guard comes before every other answer"},
	"a guard is met by another tenant's value":       {valuing(valueFault{guardTenant: true}), "S16 tenants do not share guards"},
	"an item's transaction does not keep its guards": {valuing(valueFault{guardBefore: true}), "R118 an item's transaction keeps its guards"},
}

// valuing is a fault of values or of guards.
func valuing(f valueFault) func() fault { return func() fault { return fault{values: &f} } }

func progressing(spoil func(p *store.ProgressParams)) func() fault {
	return func() fault {
		return fault{patch: patch{progress: func(ctx context.Context, next store.Claims, p store.ProgressParams) error {
			spoil(&p)
			return next.Progress(ctx, p)
		}}}
	}
}

// oldSnapshot answers a claim that lost from the snapshot in which it began to wait.
func oldSnapshot() fault {
	return fault{patch: patch{claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
		before, err := next.Lookup(ctx, store.LookupParams{ID: p.ID})
		if err != nil {
			return before, err
		}
		s, err := next.Claim(ctx, p)
		if s.Claim != nil && s.Claim.Attempt != p.Attempt {
			return before, err
		}
		return s, err
	}}}
}

// noWait skips a key that is locked, as SKIP LOCKED and try-locks do, and tells what is committed.
func noWait() fault {
	return fault{patch: patch{claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
		brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		s, err := next.Claim(brief, p)
		if errors.Is(err, store.ErrLockTimeout) {
			return next.Lookup(ctx, store.LookupParams{ID: p.ID})
		}
		return s, err
	}}}
}

func loserStarts() fault {
	var started notes[string]
	return fault{patch: patch{
		claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
			s, err := next.Claim(ctx, p)
			if s.Claim != nil && s.Claim.Attempt != p.Attempt && p.FirstItem != "" {
				started.set(p.ID, p.FirstItem)
			}
			return s, err
		},
		tell: func(id store.ID, s *store.Standing) {
			if item, ok := started.get(id); ok && s.Claim != nil {
				s.Claim.Items[item] = nil
			}
		},
	}}
}

func ignoresCancel() fault {
	return fault{patch: patch{claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
		return next.Claim(context.WithoutCancel(ctx), p)
	}}}
}

func acceptsDuplicates() fault {
	return fault{patch: patch{propose: func(ctx context.Context, next store.Claims, p store.ProposeParams) error {
		if err := next.Propose(ctx, p); !errors.Is(err, store.ErrDuplicate) {
			return err
		}
		return nil
	}}}
}

func noDigest() fault {
	return fault{patch: patch{claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
		if s, err := next.Lookup(ctx, store.LookupParams{ID: p.ID}); err == nil && s.Proposal != nil {
			p.Digest = s.Proposal.Digest
		}
		return next.Claim(ctx, p)
	}}}
}

// processExpiry judges expiry on a clock that the database's does not move.
func processExpiry() fault {
	process := time.Now()
	var expires notes[time.Time]
	return fault{patch: patch{
		propose: func(ctx context.Context, next store.Claims, p store.ProposeParams) error {
			expires.set(p.ID, process.Add(p.Expiry))
			p.Expiry = math.MaxInt64
			return next.Propose(ctx, p)
		},
		tell: func(id store.ID, s *store.Standing) {
			if at, ok := expires.get(id); ok && s.Proposal != nil {
				s.Proposal.Expired = !process.Before(at)
			}
		},
	}}
}

func processLease() fault {
	process := time.Now()
	var ends notes[time.Time]
	return fault{patch: patch{
		claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
			s, err := next.Claim(ctx, p)
			if s.Claim != nil && s.Claim.Attempt == p.Attempt {
				ends.set(p.ID, process.Add(p.Lease))
			}
			return s, err
		},
		tell: func(id store.ID, s *store.Standing) {
			if at, ok := ends.get(id); ok && s.Claim != nil {
				s.Claim.LeaseOver = !process.Before(at)
			}
		},
	}}
}

// freedByFailure deletes the claim when a write on it fails, so that "it can be tried again".
func freedByFailure() fault {
	var freed notes[bool]
	fails := func(id store.ID, err error) error {
		if err != nil {
			freed.set(id, true)
		}
		return err
	}
	return fault{patch: patch{
		progress: func(ctx context.Context, next store.Claims, p store.ProgressParams) error {
			return fails(p.ID, next.Progress(ctx, p))
		},
		complete: func(ctx context.Context, next store.Claims, p store.CompleteParams) error {
			return fails(p.ID, next.Complete(ctx, p))
		},
		tell: func(id store.ID, s *store.Standing) {
			if _, ok := freed.get(id); ok {
				s.Claim = nil
			}
		},
	}}
}

// stolen is f as whoever holds the claim has it.
func stolen(ctx context.Context, next store.Claims, f store.Fenced) store.Fenced {
	if s, err := next.Lookup(ctx, store.LookupParams{ID: f.ID}); err == nil && s.Claim != nil {
		f.Attempt, f.Fence = s.Claim.Attempt, s.Claim.Fence
	}
	return f
}

func unfencedComplete() fault {
	return fault{patch: patch{complete: func(ctx context.Context, next store.Claims, p store.CompleteParams) error {
		p.Fenced = stolen(ctx, next, p.Fenced)
		return next.Complete(ctx, p)
	}}}
}

func unfencedProgress() fault {
	return fault{patch: patch{progress: func(ctx context.Context, next store.Claims, p store.ProgressParams) error {
		p.Fenced = stolen(ctx, next, p.Fenced)
		return next.Progress(ctx, p)
	}}}
}

// overwritesCompletion compares the fence, but not whether the claim is completed.
func overwritesCompletion() fault {
	var last notes[[]byte]
	return fault{patch: patch{
		complete: func(ctx context.Context, next store.Claims, p store.CompleteParams) error {
			err := next.Complete(ctx, p)
			if errors.Is(err, store.ErrFenced) && stolen(ctx, next, p.Fenced) == p.Fenced {
				last.set(p.ID, p.Outcomes)
				return nil
			}
			return err
		},
		tell: func(id store.ID, s *store.Standing) {
			if outcomes, ok := last.get(id); ok && s.Claim != nil {
				s.Claim.Outcomes = outcomes
			}
		},
	}}
}

// overwritesItem stores an item's last outcome, or forgets it when the item is started, whatever is on record.
func overwritesItem(done, start bool) func() fault {
	return func() fault {
		var last notes[map[string][]byte]
		return fault{patch: patch{
			progress: func(ctx context.Context, next store.Claims, p store.ProgressParams) error {
				err := next.Progress(ctx, p)
				m := map[string][]byte{}
				if done {
					m[p.Done] = p.Outcome
				}
				if start && p.Next != "" {
					m[p.Next] = nil
				}
				if err == nil {
					last.set(p.ID, m)
				}
				return err
			},
			tell: func(id store.ID, s *store.Standing) {
				m, _ := last.get(id)
				for item, outcome := range m {
					if s.Claim != nil && s.Claim.Items != nil {
						s.Claim.Items[item] = outcome
					}
				}
			},
		}}
	}
}

// reencode does what a jsonb column does.
func reencode(p *store.CompleteParams) {
	var v any
	if json.Unmarshal(p.Outcomes, &v) == nil {
		p.Outcomes, _ = json.Marshal(v)
	}
}

// leavesProbe does not take back the claim with which the barrier waits.
func leavesProbe() fault {
	return fault{patch: patch{lookup: func(ctx context.Context, next store.Claims, p store.LookupParams) (store.Standing, error) {
		if !p.Barrier {
			return next.Lookup(ctx, p)
		}
		probe := uuid.New()
		if _, err := next.Claim(ctx, store.ClaimParams{ID: p.ID, Attempt: probe, AcceptUnminted: true}); err != nil {
			return store.Standing{}, err
		}
		s, err := next.Lookup(ctx, p)
		if s.Claim != nil && s.Claim.Attempt == probe {
			s.Claim = nil
		}
		return s, err
	}}}
}

func sharesMemory() fault {
	var kept notes[[]byte]
	return fault{patch: patch{
		propose: func(ctx context.Context, next store.Claims, p store.ProposeParams) error {
			kept.set(p.ID, p.Content)
			return next.Propose(ctx, p)
		},
		tell: func(id store.ID, s *store.Standing) {
			if content, ok := kept.get(id); ok && s.Proposal != nil && s.Proposal.Content != nil {
				s.Proposal.Content = content
			}
		},
	}}
}

// losesKind wraps every error as a fault of the database.
func losesKind() fault {
	plain := func(err error) error {
		if err == nil {
			return nil
		}
		return &store.Error{Op: "broken", Cause: errors.New(err.Error())}
	}
	return fault{patch: patch{
		claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
			s, err := next.Claim(ctx, p)
			return s, plain(err)
		},
		lookup: func(ctx context.Context, next store.Claims, p store.LookupParams) (store.Standing, error) {
			s, err := next.Lookup(ctx, p)
			return s, plain(err)
		},
	}}
}

func oneTenant() fault {
	return fault{patch: patch{
		propose: func(ctx context.Context, next store.Claims, p store.ProposeParams) error {
			p.ID = anyTenant(p.ID)
			return next.Propose(ctx, p)
		},
		claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
			p.ID = anyTenant(p.ID)
			return next.Claim(ctx, p)
		},
		lookup: func(ctx context.Context, next store.Claims, p store.LookupParams) (store.Standing, error) {
			p.ID = anyTenant(p.ID)
			return next.Lookup(ctx, p)
		},
	}}
}

// tenantlessTarget lets a claim conflict with another tenant's of the same key string.
func tenantlessTarget() fault {
	var holder notes[string]
	return fault{patch: patch{claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
		if tenant, held := holder.get(anyTenant(p.ID)); held && tenant != p.Tenant {
			return next.Lookup(ctx, store.LookupParams{ID: p.ID})
		}
		s, err := next.Claim(ctx, p)
		if s.Claim != nil {
			holder.set(anyTenant(p.ID), p.Tenant)
		}
		return s, err
	}}}
}

func tenantlessComplete() fault {
	var holder notes[string]
	return fault{patch: patch{
		claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
			holder.set(anyTenant(p.ID), p.Tenant)
			return next.Claim(ctx, p)
		},
		complete: func(ctx context.Context, next store.Claims, p store.CompleteParams) error {
			if tenant, ok := holder.get(anyTenant(p.ID)); ok {
				p.Tenant = tenant
			}
			return next.Complete(ctx, p)
		},
	}}
}

func tenantlessProposal() fault {
	var proposed notes[bool]
	return fault{patch: patch{
		propose: func(ctx context.Context, next store.Claims, p store.ProposeParams) error {
			proposed.set(anyTenant(p.ID), true)
			return next.Propose(ctx, p)
		},
		claim: func(ctx context.Context, next store.Claims, p store.ClaimParams) (store.Standing, error) {
			if _, ok := proposed.get(anyTenant(p.ID)); ok {
				p.AcceptUnminted = true
			}
			return next.Claim(ctx, p)
		},
	}}
}

func keepsAll() fault {
	return fault{isolate: func(_ context.Context, _ *memstore.Store, tx *memstore.Tx, n int, fn func(int, *memstore.Tx) error) ([]error, error) {
		undone := make([]error, n)
		for i := range n {
			undone[i] = fn(i, tx)
		}
		return undone, nil
	}}
}

func stopsAtFailure() fault {
	return fault{isolate: func(ctx context.Context, s *memstore.Store, tx *memstore.Tx, n int, fn func(int, *memstore.Tx) error) ([]error, error) {
		failed := false
		return s.Isolate(ctx, tx, n, func(i int, tx *memstore.Tx) error {
			if failed {
				return nil
			}
			err := fn(i, tx)
			failed = err != nil
			return err
		})
	}}
}

func swallowsRetry() fault {
	return fault{isolate: func(ctx context.Context, s *memstore.Store, tx *memstore.Tx, n int, fn func(int, *memstore.Tx) error) ([]error, error) {
		return s.Isolate(ctx, tx, n, func(i int, tx *memstore.Tx) error {
			if err := fn(i, tx); err != nil {
				return errors.New(err.Error())
			}
			return nil
		})
	}}
}

func swallowsPanic() fault {
	return fault{isolate: func(ctx context.Context, s *memstore.Store, tx *memstore.Tx, n int, fn func(int, *memstore.Tx) error) ([]error, error) {
		return s.Isolate(ctx, tx, n, func(i int, tx *memstore.Tx) (err error) {
			defer func() {
				if recover() != nil {
					err = errors.New("a panic")
				}
			}()
			return fn(i, tx)
		})
	}}
}

// lendsOwners hands the owner's own transaction to the items, and does not look whether it still stands.
func lendsOwners() fault {
	return fault{isolate: func(_ context.Context, _ *memstore.Store, tx *memstore.Tx, n int, fn func(int, *memstore.Tx) error) ([]error, error) {
		undone := make([]error, n)
		for i := range n {
			undone[i] = fn(i, tx)
		}
		return undone, nil
	}}
}
