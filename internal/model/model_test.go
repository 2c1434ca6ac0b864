package main

import (
	"bytes"
	"io"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"testing"
)

// large is how many states a search under the race detector may have at most: it has one goroutine, in which there is
// nothing to race for.
const large = 20_000

// The design's variants hold, its limits and every seeded bug are found: with the property that is named, by a
// shortest way.
func TestVariants(t *testing.T) {
	var (
		mu    sync.Mutex
		taken = map[string]bool{}
		all   = variants()
		rows  = make([]string, len(all))
	)
	t.Run("all", func(t *testing.T) {
		for i := range all {
			t.Run(all[i].name, func(t *testing.T) {
				t.Parallel()
				r := check(t, &all[i])
				rows[i] = r.row()
				mu.Lock()
				defer mu.Unlock()
				for _, a := range actions(&all[i]) {
					used := len(r.findings) == 0 && !slices.Contains(r.unused, a.name)
					taken[a.name] = taken[a.name] || used || len(all[i].expect) > 0
				}
			})
		}
	})
	t.Logf("\n%s\n%s", header(), strings.Join(rows, "\n"))
	for name, is := range taken { // what holds proves nothing about steps that are never taken
		if !is {
			t.Errorf("never taken where nothing is seeded: %s", name)
		}
	}
}

// check explores a variant and compares what it finds with what is expected.
func check(t *testing.T, v *variant) result {
	t.Helper()
	stop := func(states int) {
		if raceEnabled && states > large {
			t.Skip("too large for the race detector")
		}
	}
	r := explore(v, stop)
	if !r.asExpected() {
		t.Errorf("expected %v\n%s\n%s", v.expect, r.row(), r.traces())
	}
	for _, f := range r.findings {
		t.Logf("%s after %d steps", f.property, len(f.steps))
	}
	if r.states < 10 {
		t.Errorf("only %d states", r.states)
	}
	return r
}

// Every switch has a variant of its own that must be found.
func TestEveryBugIsSeeded(t *testing.T) {
	var found flaw
	names := map[string]bool{}
	for _, v := range variants() {
		if names[v.name] {
			t.Errorf("twice: %s", v.name)
		}
		names[v.name] = true
		if len(v.expect) > 0 {
			found |= v.flaws
		}
	}
	if all := cancelUpdate<<1 - 1; found != all {
		t.Errorf("%d of %d bugs are seeded", bits.OnesCount32(uint32(found)), bits.OnesCount32(uint32(all)))
	}
}

// States that differ only in which confirm is which are one state.
func TestCanonical(t *testing.T) {
	v := correct()[2]
	e := &explorer{v: &v, actions: actions(&v), seen: map[state]int32{}, taken: make([]bool, 256)}
	e.add(v.initial(), -1, move{})
	for id := range int32(2000) {
		e.expand(id)
	}
	for _, s := range e.states {
		turned := s
		c := &turned.confirmers
		c[0], c[1], c[2], c[3] = c[2], c[3], c[1], c[0]
		turned.canonical()
		if turned != s {
			t.Fatalf("%+v\n%+v", s, turned)
		}
	}
}

// A counterexample leads to what it says: two effects, told by name, with the same confirm under the same name
// throughout.
func TestTraceIsReadable(t *testing.T) {
	i := slices.IndexFunc(variants(), func(v variant) bool { return v.flaws == assumeOK })
	v := variants()[i]
	r := explore(&v, nil)
	steps := r.finding(p1).steps
	if last := steps[len(steps)-1]; !strings.Contains(last, "runs the item") || !strings.Contains(last, "effects 2") {
		t.Error(last)
	}
	seen := map[string]int{}
	for _, step := range steps {
		who, _, _ := strings.Cut(step, ":")
		seen[who]++
	}
	if seen["confirm A"]+seen["confirm B"] != len(steps) || seen["confirm A"] == 0 || seen["confirm B"] == 0 {
		t.Errorf("%v\n%s", seen, r.traces())
	}
}

// The command prints the table and the counterexamples, and fails when it has checked nothing or something is
// unexpected.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if !run(&out, io.Discard, "plain read", true) {
		t.Error("it failed")
	}
	for _, want := range []string{"variant", "unknown commit, plain read", "P6 is broken after", "2 variants,"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if run(io.Discard, io.Discard, "no such variant", false) {
		t.Error("nothing was checked, and it did not fail")
	}
	lying := variants()[0]
	lying.expect = []property{p1}
	if r := explore(&lying, nil); r.asExpected() || !strings.Contains(r.row(), "UNEXPECTED") {
		t.Error(r.row())
	}
}
