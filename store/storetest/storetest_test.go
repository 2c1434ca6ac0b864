package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

const faultVariable = "STORETEST_FAULT"

// TestFault runs the suite on the broken store that the environment names, and so fails.
func TestFault(t *testing.T) {
	name := os.Getenv(faultVariable)
	if name == "" {
		t.Skip("TestTheSuiteFindsFaults runs this test in a process of its own")
	}
	storetest.Run(t, func(*testing.T) storetest.Harness[*memstore.Tx] { return newHarness(faults[name].fault()) })
}

// What TestTheSuiteFindsFaults shows is the faults' doing: without one the same store passes.
func TestTheSuitePassesWithoutAFault(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness[*memstore.Tx] { return newHarness(fault{}) })
}

// The same of the store whose values have row locks.
func TestTheSuitePassesWithoutAFaultOfValues(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness[*memstore.Tx] { return newHarness(fault{values: &valueFault{}}) })
}

// S12, S16, S20, S21: every broken store is found, by the case that is there for it, and the rule that it breaks is named.
// With -v the table of broken stores is printed.
func TestTheSuiteFindsFaults(t *testing.T) {
	var mu sync.Mutex
	var table []string
	t.Cleanup(func() {
		slices.Sort(table)
		t.Logf("%d broken stores:\n%s", len(table), strings.Join(table, "\n"))
	})
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := runSuite(t, name, "/^"+regexp.QuoteMeta(f.found)+"$")
			_, rule, found := bytes.Cut(out, []byte("broken rule: "))
			if !found {
				t.Fatalf("the case %q does not find the fault:\n%s\n%s", f.found, out, others(t, name))
			}
			line, _, _ := bytes.Cut(rule, []byte("\n"))
			mu.Lock()
			defer mu.Unlock()
			table = append(table, fmt.Sprintf("%-53s -> %s (%s)", name, f.found, line))
		})
	}
}

// runSuite runs cases of the suite on a broken store, in a process of its own, and returns what it printed.
func runSuite(t *testing.T, name, cases string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.timeout=2m", "-test.run=^TestFault$"+cases)
	cmd.Env = append(os.Environ(), faultVariable+"="+name)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out
}

var failed = regexp.MustCompile(`--- FAIL: TestFault/(.*) \(`)

// others tells which cases find a fault that its own case has missed.
func others(t *testing.T, name string) string {
	t.Helper()
	var all []string
	for _, m := range failed.FindAllSubmatch(runSuite(t, name, ""), -1) {
		all = append(all, string(m[1]))
	}
	if all == nil {
		return "the broken store passes the whole suite"
	}
	return "other cases find it: " + strings.Join(all, ", ")
}

// faulty is a memstore with a fault.
type faulty struct {
	*memstore.Store
	fault
	loose *memstore.Store // where an In that forgets its transaction writes
}

// Rollback says nothing of a transaction that had ended.
func (s faulty) Rollback(ctx context.Context, tx *memstore.Tx) error {
	err := s.Store.Rollback(ctx, tx)
	if s.handleEnds && errors.Is(err, store.ErrTxEnded) {
		return nil
	}
	return err
}

func (s faulty) Own() store.Claims {
	if s.forgetsTx {
		return s.loose.Own()
	}
	return s.patch.of(s.Store.Own())
}

func (s faulty) In(tx *memstore.Tx) store.Claims {
	if s.forgetsTx {
		return s.loose.Own()
	}
	return s.patch.of(s.Store.In(tx))
}

func (s faulty) Isolate(ctx context.Context, tx *memstore.Tx, n int, fn func(int, *memstore.Tx) error) ([]error, error) {
	if s.isolate != nil {
		return s.isolate(ctx, s.Store, tx, n, fn)
	}
	return s.Store.Isolate(ctx, tx, n, fn)
}

// clock is the database's clock of a harness: it stands still until the suite advances it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// ledger holds the effects of a harness.
type ledger struct {
	mu   sync.Mutex
	rows map[string]int
}

func (l *ledger) add(name string, n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows[name] += n
	return l.rows[name]
}

func newHarness(f fault) storetest.Harness[*memstore.Tx] {
	c, l := &clock{now: time.Now()}, &ledger{rows: map[string]int{}}
	cfg := &memstore.Config{Now: c.Now, LockTimeout: time.Second}
	m := memstore.New(cfg)
	var s store.Store[*memstore.Tx] = faulty{m, f, memstore.New(cfg)}
	ended := func(*memstore.Tx, bool) {}
	if f.values != nil {
		r := newRows(*f.values)
		s, ended = rowStore{m, r}, r.end
	}
	return storetest.Harness[*memstore.Tx]{
		Store: s,
		Begin: m.BeginTx,
		Commit: func(ctx context.Context, tx *memstore.Tx) error {
			err := tx.Commit()
			if err != nil && f.handleEnds {
				err = m.Commit(ctx, tx, store.Closing{})
			}
			if err == nil {
				ended(tx, true)
			}
			return err
		},
		Rollback: func(_ context.Context, tx *memstore.Tx) error {
			ended(tx, false)
			return tx.Rollback()
		},
		Effect: func(_ context.Context, tx *memstore.Tx, name string) error {
			l.add(name, 1)
			tx.OnRollback(func() { l.add(name, -1) })
			return nil
		},
		Count:   func(_ context.Context, name string) (int, error) { return l.add(name, 0), nil },
		Advance: c.advance,
	}
}
