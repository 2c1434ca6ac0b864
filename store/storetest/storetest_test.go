package storetest_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// faults are stores with one fault each, and the case that must find it.
var faults = map[string]struct {
	fault func(store.Claims) store.Claims
	found string
}{
	"every claim wins": {
		func(c store.Claims) store.Claims { return everyClaimWins{c} }, "S12 the second claim sees the first",
	},
	"the fence is forgotten": {
		func(c store.Claims) store.Claims { return noFence{c} }, "S21 completion is fenced",
	},
	"the barrier does not wait": {
		func(c store.Claims) store.Claims { return noBarrier{c} }, "S19 the barrier sees a claim that commits",
	},
	"tenants are ignored": {
		func(c store.Claims) store.Claims { return oneTenant{c} }, "S16 another tenant's key looks absent",
	},
	"the lease is short": {
		func(c store.Claims) store.Claims { return noRenewal{c} }, "S31 progress renews the lease",
	},
	"unminted keys are taken": {
		func(c store.Claims) store.Claims { return takesAll{c} }, "S11 a key without a proposal is not claimed",
	},
	"isolation is forgotten": {nil, "S15 Isolate undoes the item that fails"},
}

const faultVariable = "STORETEST_FAULT"

// TestFault runs the suite on a store with the fault that the environment names, and so fails.
func TestFault(t *testing.T) {
	name := os.Getenv(faultVariable)
	if name == "" {
		t.Skip("TestTheSuiteFindsFaults runs this test in a process of its own")
	}
	storetest.Run(t, func(*testing.T) storetest.Harness[*memstore.Tx] { return newFaulty(faults[name].fault) })
}

// S12, S16, S21: the suite fails for a store that breaks its rules, and names the rule.
func TestTheSuiteFindsFaults(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestFault$/^"+f.found+"$")
			cmd.Env = append(os.Environ(), faultVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("broken rule: ")) {
				t.Errorf("the case %q does not find the fault:\n%s", f.found, out)
			}
		})
	}
}

// faulty is a memstore with a fault. Without one for its claims it does not isolate items.
type faulty struct {
	*memstore.Store
	fault func(store.Claims) store.Claims
}

func (s faulty) Own() store.Claims               { return s.wrap(s.Store.Own()) }
func (s faulty) In(tx *memstore.Tx) store.Claims { return s.wrap(s.Store.In(tx)) }
func (s faulty) wrap(c store.Claims) store.Claims {
	if s.fault == nil {
		return c
	}
	return s.fault(c)
}

func (s faulty) Isolate(
	ctx context.Context, tx *memstore.Tx, n int, fn func(int, *memstore.Tx) error,
) ([]error, error) {
	if s.fault != nil {
		return s.Store.Isolate(ctx, tx, n, fn)
	}
	undone := make([]error, n)
	for i := range n {
		undone[i] = fn(i, tx)
	}
	return undone, nil
}

func newFaulty(fault func(store.Claims) store.Claims) storetest.Harness[*memstore.Tx] {
	rows := map[string]int{}
	s := memstore.New(&memstore.Config{LockTimeout: time.Second})
	return storetest.Harness[*memstore.Tx]{
		Store:    faulty{s, fault},
		Begin:    s.Begin,
		Commit:   func(_ context.Context, tx *memstore.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *memstore.Tx) error { return tx.Rollback() },
		Effect: func(_ context.Context, tx *memstore.Tx, name string) error {
			rows[name]++
			tx.OnRollback(func() { rows[name]-- })
			return nil
		},
		Count:   func(_ context.Context, name string) (int, error) { return rows[name], nil },
		Advance: time.Sleep,
	}
}

type everyClaimWins struct{ store.Claims }

func (c everyClaimWins) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	s, err := c.Claims.Claim(ctx, p)
	if s.Claim != nil {
		s.Claim.Attempt = p.Attempt
	}
	return s, err
}

type noFence struct{ store.Claims }

func (c noFence) Complete(ctx context.Context, p store.CompleteParams) error {
	if s, err := c.Lookup(ctx, store.LookupParams{ID: p.ID}); err == nil && s.Claim != nil {
		p.Attempt, p.Fence = s.Claim.Attempt, s.Claim.Fence
	}
	return c.Claims.Complete(ctx, p)
}

type noBarrier struct{ store.Claims }

func (c noBarrier) Lookup(ctx context.Context, p store.LookupParams) (store.Standing, error) {
	p.Barrier = false
	return c.Claims.Lookup(ctx, p)
}

type oneTenant struct{ store.Claims }

func (c oneTenant) Propose(ctx context.Context, p store.ProposeParams) error {
	p.Tenant = ""
	return c.Claims.Propose(ctx, p)
}

func (c oneTenant) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	p.Tenant = ""
	return c.Claims.Claim(ctx, p)
}

func (c oneTenant) Lookup(ctx context.Context, p store.LookupParams) (store.Standing, error) {
	p.Tenant = ""
	return c.Claims.Lookup(ctx, p)
}

type noRenewal struct{ store.Claims }

func (c noRenewal) Progress(ctx context.Context, p store.ProgressParams) error {
	p.Lease = 0
	return c.Claims.Progress(ctx, p)
}

type takesAll struct{ store.Claims }

func (c takesAll) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	p.AcceptUnminted = true
	return c.Claims.Claim(ctx, p)
}
