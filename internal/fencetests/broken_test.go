package fencetests

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/fencing/fencetest"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

const faultVariable = "FENCETESTS_FAULT"

// faults are implementations that are broken under concurrency alone, and the case that must find each: package fencing on stores
// that do not keep what store.Values promises, and the plain implementation with other locks.
var faults = map[string]struct {
	harness func(t *testing.T) fencetest.Harness[pgx.Tx]
	found   string
}{
	"a check without a lock":       {on(withoutLock), "J3 R118 a move waits for a writer, or undoes it"},
	"a check before a move's end":  {on(withoutLock), "J3 R118 a writer waits for a move that commits"},
	"a check FOR KEY SHARE":        {on(keyShare), "J3 R118 a move waits for a writer, or undoes it"},
	"FOR KEY SHARE does not wait":  {on(keyShare), "J3 R118 a writer waits for a move that commits"},
	"a mutation's unlocked guard":  {on(withoutLock), "J3 R118 a fence that moves under a mutation"},
	"unlocked admission":           {on(withoutLock), "J11 R57 a close waits for new work, or undoes it"},
	"a move without a comparison":  {on(blindSwap), "J2 R41 an activation waits for another"},
	"a mark without a comparison":  {on(blindSwap), "J4 R56 a token waits for a higher one"},
	"a change of no generation":    {on(blindSwap), "J9 R45 a change waits for another from its generation"},
	"a control of no revision":     {on(blindSwap), "J10 R77 a control waits for a stop from its revision"},
	"a permit that is not swapped": {on(blindSwap), "J13 R51 a permit that is being consumed is not consumed again"},
	"a permit beside a fence":      {on(blindSwap), "J13 R72 a permit waits for the fence of its reservation"},
	"plain SELECTs":                {plainly(""), "J3 R118 a move waits for a writer, or undoes it"},
	"plain SELECTs of the office":  {plainly(""), "J4 R118 an activation waits for a dispatcher that takes office"},
	"plain FOR KEY SHARE":          {plainly("FOR KEY SHARE"), "J3 R118 a writer waits for a move that commits"},
}

// on is package fencing on a store with a fault.
func on(fault func(tx pgx.Tx, next store.Values) store.Values) func(t *testing.T) fencetest.Harness[pgx.Tx] {
	return func(t *testing.T) fencetest.Harness[pgx.Tx] {
		db := pgtest.New(t)
		pool, admin := db.Pool(t), db.AdminPool(t)
		st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: lockTimeout})
		require.NoError(t, err)
		return connected(db, pool, admin, faulty{st, fault})
	}
}

func plainly(lock string) func(t *testing.T) fencetest.Harness[pgx.Tx] {
	return func(t *testing.T) fencetest.Harness[pgx.Tx] { return onPlain(pgtest.New(t).Pool(t), lock) }
}

// changed are values of which some calls are another's.
type changed struct {
	store.Values
	hold func(ctx context.Context, id store.ValueID) (store.Value, error)
	swap func(ctx context.Context, p store.SwapParams) (store.Value, error)
}

func (c changed) Hold(ctx context.Context, id store.ValueID) (store.Value, error) {
	if c.hold != nil {
		return c.hold(ctx, id)
	}
	return c.Values.Hold(ctx, id)
}

func (c changed) Swap(ctx context.Context, p store.SwapParams) (store.Value, error) {
	if c.swap != nil {
		return c.swap(ctx, p)
	}
	return c.Values.Swap(ctx, p)
}

// withoutLock is a SELECT, as a check in a statement of its own or WHERE EXISTS is.
func withoutLock(_ pgx.Tx, next store.Values) store.Values {
	return changed{Values: next, hold: next.Load}
}

// keyShare takes the lock that a foreign key takes.
func keyShare(tx pgx.Tx, next store.Values) store.Values {
	return changed{Values: next, hold: func(ctx context.Context, id store.ValueID) (store.Value, error) {
		_, err := tx.Exec(ctx, `SELECT 1 FROM agents.agent_idempotency_key
    WHERE firm_id = $1 AND item_id = $2 AND boundary = 'value' FOR KEY SHARE`, id.Tenant, id.Name)
		if err != nil {
			return store.Value{}, err
		}
		return next.Load(ctx, id)
	}}
}

// blindSwap sets a value whatever its revision is, but for the suite's log.
func blindSwap(_ pgx.Tx, next store.Values) store.Values {
	return changed{Values: next, swap: func(ctx context.Context, p store.SwapParams) (store.Value, error) {
		v, err := next.Swap(ctx, p)
		for errors.Is(err, store.ErrRevision) && p.Name != "fencetest/log" {
			p.Revision = v.Revision
			v, err = next.Swap(ctx, p)
		}
		return v, err
	}}
}

// faulty is a store with a fault.
type faulty struct {
	*pgstore.Store
	fault func(tx pgx.Tx, next store.Values) store.Values
}

func (s faulty) Values(tx pgx.Tx) store.Values { return s.fault(tx, s.Store.Values(tx)) }

// TestFault runs the suite on the broken implementation that the environment names, and so fails.
func TestFault(t *testing.T) {
	name := os.Getenv(faultVariable)
	if name == "" {
		t.Skip("TestTheSuiteFindsFaults runs this test in a process of its own")
	}
	fencetest.Run(t, faults[name].harness)
}

// R118, section 2.2 of the reference: every broken implementation is found, by the case that is there for it.
func TestTheSuiteFindsFaults(t *testing.T) {
	pgtest.New(t) // skips where there is no PostgreSQL
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			_, rule, found := bytes.Cut(runFault(t, name, f.found), []byte("broken rule: "))
			if !found { // a machine that is busy with something else can hide one, once
				_, rule, found = bytes.Cut(runFault(t, name, f.found), []byte("broken rule: "))
			}
			if !found {
				t.Fatalf("the case %q does not find the fault", f.found)
			}
			line, _, _ := bytes.Cut(rule, []byte("\n"))
			t.Logf("%s (%s)", f.found, line)
		})
	}
}

// runFault runs a case of the suite on a broken implementation, in a process of its own, and returns what it printed.
func runFault(t *testing.T, name, found string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.timeout=2m", "-test.run=^TestFault$/^"+regexp.QuoteMeta(found)+"$")
	cmd.Env = append(os.Environ(), faultVariable+"="+name)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out
}
