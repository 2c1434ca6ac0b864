package fencetest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/confirmexec/confirmexec/fencing/fencetest"
)

const faultVariable = "FENCETEST_FAULT"

// TestFault runs the suite on the broken implementation that the environment names, and so fails.
func TestFault(t *testing.T) {
	name := os.Getenv(faultVariable)
	if name == "" {
		t.Skip("TestTheSuiteFindsFaults runs this test in a process of its own")
	}
	fencetest.Run(t, func(*testing.T) harness { return broken(memory(), faults[name].fault) })
}

// broken is h with a fault, and again with it after each restart.
func broken(h harness, fault func(*harness)) harness {
	restart := h.Restart
	fault(&h)
	h.Restart = func(t *testing.T) harness {
		t.Helper()
		return broken(restart(t), fault)
	}
	return h
}

// Every broken implementation is found, by the case that is there for it, and the rule that it breaks is named. With -v the table
// of broken implementations is printed.
func TestTheSuiteFindsFaults(t *testing.T) {
	var mu sync.Mutex
	var table []string
	t.Cleanup(func() {
		slices.Sort(table)
		t.Logf("%d broken implementations:\n%s", len(table), strings.Join(table, "\n"))
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
			table = append(table, fmt.Sprintf("%-40s -> %s (%s)", name, f.found, line))
		})
	}
}

// runSuite runs cases of the suite on a broken implementation, in a process of its own, and returns what it printed.
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
		return "the broken implementation passes the whole suite"
	}
	return "other cases find it: " + strings.Join(all, ", ")
}
