package faults

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/confirmexec/confirmexec/internal/faultnet"
)

// The least number of cases that make a whole enumeration. A change of the library that takes round trips away makes fewer, and is
// the reason to lower them.
const (
	minimumCases      = 6700
	minimumCasesShort = 650
)

var (
	only     = flag.String("only", "", "run the cases whose name matches, such as 'confirm/ExecuteTx/executed/reset/3'")
	tell     = flag.Bool("tell", false, "tell everything that was told in every case")
	parallel = flag.Int("trials", 32, "cases at a time")
)

// fault is a column of the matrix.
type fault struct {
	name   string
	kind   func(leave func()) faultnet.Kind // leave ends the caller's context
	inTurn bool                             // it is part of the short form
	unseen []string                         // the modes in which a confirm is answered as without it
	chief  bool                             // it also strikes where there are more boundaries than every fault takes
	alike  bool                             // where the surface is read it would show no more than a reset does
}

func faults() []fault {
	plain := func(k faultnet.Kind) func(func()) faultnet.Kind { return func(func()) faultnet.Kind { return k } }
	impatient := func(k faultnet.Kind) func(func()) faultnet.Kind {
		return func(leave func()) faultnet.Kind { return k.Then(func() { time.AfterFunc(callerWait, leave) }) }
	}
	return []fault{
		{name: "reset", kind: plain(faultnet.Reset), inTurn: true, chief: true},
		{name: "half-close", kind: plain(faultnet.HalfClose)},
		{name: "silence", kind: impatient(faultnet.Silence)},
		{name: "partition", kind: impatient(faultnet.Partition), chief: true},
		{name: "late", kind: plain(faultnet.Late(lateness)), chief: true},
		{name: "cancel", kind: func(leave func()) faultnet.Kind { return faultnet.Call("cancel", leave) }, unseen: []string{execute, perItem},
			chief: true},
		{name: "57P01", kind: plain(faultnet.Fatal("57P01")), inTurn: true, chief: true, alike: true},
		{name: "40001", kind: plain(faultnet.Error("40001")), unseen: []string{execute, perItem, atomically}, chief: true},
		{name: "40P01", kind: plain(faultnet.Error("40P01")), unseen: []string{execute, perItem, atomically}},
		{name: "55P03", kind: plain(faultnet.Error("55P03"))},
		{name: "57014", kind: plain(faultnet.Error("57014")), chief: true},
		{name: "53100", kind: plain(faultnet.Error("53100"))},
	}
}

// tally counts the cases of one place and fault, and those in which it struck.
type tally struct{ cases, fired int }

// matrix is what was enumerated.
type matrix struct {
	mu     sync.Mutex
	cells  map[string]*tally         // by place and fault
	rows   map[string]*tally         // by scenario and mode
	words  map[string]map[string]int // what was told in each, by scenario and mode
	failed int                       // cases
	cases  int
}

func newMatrix() *matrix {
	return &matrix{cells: map[string]*tally{}, rows: map[string]*tally{}, words: map[string]map[string]int{}}
}

func (m *matrix) add(r *run, cell string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cases++
	row, fired := r.String(), r.fired
	if m.words[row] == nil {
		m.words[row] = map[string]int{}
	}
	m.words[row][r.answered.word()]++
	if r.failed {
		m.failed++
	}
	for _, t := range []*tally{of(m.cells, cell), of(m.rows, row)} {
		t.cases++
		if fired {
			t.fired++
		}
	}
}

// hopeless says whether so many cases have failed that no more are needed.
func (m *matrix) hopeless() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed >= enoughFailures
}

const enoughFailures = 20

func of(m map[string]*tally, name string) *tally {
	if m[name] == nil {
		m[name] = new(tally)
	}
	return m[name]
}

// TestEveryFaultAtEveryBoundary enumerates: for each scenario, place and fault the n-th boundary is faulted, n = 1, 2, 3, … until
// a run has no n-th boundary. After every one of these runs all invariants are checked.
func TestEveryFaultAtEveryBoundary(t *testing.T) {
	t.Parallel()
	m := newMatrix()
	slots := make(chan struct{}, *parallel)
	var chains sync.WaitGroup
	for _, s := range scenarios() {
		w := newWorld(t)
		for _, f := range faults() {
			for _, at := range faultnet.Places {
				if f.enumerated(s) && f.kind(func() {}).Possible(at) {
					chains.Go(func() { m.enumerate(t, w, s, f, at, slots) })
				}
			}
		}
	}
	chains.Wait()
	if short() {
		m.report(t, slices.DeleteFunc(faults(), func(f fault) bool { return !f.inTurn }), minimumCasesShort)
		return
	}
	m.report(t, faults(), minimumCases)
}

func (f fault) enumerated(s scenario) bool {
	if short() {
		return f.inTurn && !s.long()
	}
	return (f.chief || !s.long()) && (!f.alike || !s.read)
}

// mostBoundaries is more than any scenario has.
const mostBoundaries = 60

// enumerate faults the n-th boundary for each n that there is.
func (m *matrix) enumerate(t *testing.T, w *world, s scenario, f fault, at faultnet.Place, slots chan struct{}) {
	wanted := regexp.MustCompile(*only)
	cell := at.String() + "/" + f.name
	for n := 1; n < mostBoundaries; n++ {
		name := fmt.Sprintf("%s/%s/%d", s, cell, n)
		if !wanted.MatchString(name) {
			continue
		}
		slots <- struct{}{}
		last := false
		for range triesForAWholeRun {
			run := newRun(t, w, s, name)
			run.unseen = s.name == "confirm" && slices.Contains(f.unseen, s.mode)
			run.do(func(leave func()) { run.in.Arm(n, at, f.kind(leave)) })
			if m.add(run, cell); m.hopeless() {
				last = true
			} else {
				last = !run.reached && run.whole
			}
			if last || run.reached {
				break
			}
		}
		<-slots
		if last {
			return
		}
	}
	if *only == "" {
		t.Errorf("%s/%s: no end after %d boundaries", s, cell, mostBoundaries)
	}
}

// triesForAWholeRun is how often a run is made again that no fault disturbed, but whose time was over on a machine that is too
// busy: it does not show where the boundaries end.
const triesForAWholeRun = 10

// run is one case.
type run struct {
	*trial
	scenario
	reached, fired bool     // the boundary; the fault
	whole          bool     // it was answered as it is without a fault
	answered       answer   // how it was answered
	unseen         bool     // the fault is not to be seen in the answer
	meet           *meeting // with the other cases of the same fault; nil: it is alone
}

func newRun(t testing.TB, w *world, s scenario, name string) *run {
	return &run{trial: newTrial(t, w, name, s.mode), scenario: s}
}

// do runs the case, in a goroutine of its own that a failure ends.
func (r *run) do(arm func(leave func())) {
	var done sync.WaitGroup
	done.Go(func() {
		defer r.end()
		ctx, cancel := r.bounded(2 * patience)
		defer cancel()
		r.prepare(ctx, r.trial)
		if r.warm {
			r.warmUp(ctx, r.scenario)
		}
		r.strikeInto(arm)
		r.survive(ctx)
		r.aftermath(ctx, r.scenario)
	})
	done.Wait()
}

// strikeInto runs what is faulted.
func (r *run) strikeInto(arm func(leave func())) {
	ctx, leave := r.bounded(patience)
	defer leave()
	start := time.Now()
	arm(leave)
	overdue := time.AfterFunc(patience, func() {
		r.Errorf("I14: the call has not ended after %v", patience)
		r.in.Disarm()
	})
	a := r.run(ctx, r.trial)
	overdue.Stop()
	r.reached, r.fired = r.in.Reached(), r.in.Fired()
	r.in.Disarm()
	r.whole = r.scenario.whole(a)
	r.answered = a
	if time.Since(start) > storeTimeout/2 { // it may have been cut short by the machine
		return
	}
	switch {
	case !r.fired && !r.whole:
		r.Errorf("without a fault: %v", a)
	case r.fired && !r.whole && r.unseen:
		r.Errorf("the fault is seen in the answer: %v (%v)", a, errors.Unwrap(a.err))
	}
}

// report prints the matrix, and fails when something was not enumerated.
func (m *matrix) report(t *testing.T, faults []fault, least int) {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "fault: fired/cases")
	for _, at := range faultnet.Places {
		fmt.Fprintf(table, "\t%s", at)
	}
	for _, f := range faults {
		fmt.Fprintf(table, "\n%s", f.name)
		for _, at := range faultnet.Places {
			cell := of(m.cells, at.String()+"/"+f.name)
			switch {
			case !f.kind(func() {}).Possible(at):
				fmt.Fprint(table, "\t-") // Possible says why
				continue
			case cell.fired == 0 && *only == "":
				t.Errorf("%s never fired %s", f.name, at)
			}
			fmt.Fprintf(table, "\t%d/%d", cell.fired, cell.cases)
		}
	}
	fmt.Fprint(table, "\n\nscenario: fired/cases\t\twhat the faulted call told")
	for _, s := range scenarios() {
		if row := of(m.rows, s.String()); row.cases > 0 {
			fmt.Fprintf(table, "\n%s\t%d/%d\t%v", s, row.fired, row.cases, m.words[s.String()])
		}
	}
	_ = table.Flush()
	t.Logf("%d cases, at least %d are expected\n%s", m.cases, least, b.String())
	if m.cases < least && *only == "" {
		t.Errorf("%d cases: the enumeration is not whole, at least %d are expected", m.cases, least)
	}
}
