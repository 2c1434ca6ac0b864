package main

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// tally is what came of the keys of one mode, or of several. Only keys that all processes have reported on are in it;
// but happened is everything that executors left behind.
type tally struct {
	mode     string
	keys     int
	answers  map[string]int      // how often each word
	examples []example           // of answers that are not expected
	applied  map[effect]struct{} // what some result said was applied
	happened counts              // nil if they could not be counted
	noFirst  int                 // keys without exactly one first run
	differ   int                 // keys whose results do not all tell the same
	took     []time.Duration
	elapsed  time.Duration
}

func newTally(mode string) *tally {
	return &tally{mode: mode, answers: map[string]int{}, applied: map[effect]struct{}{}}
}

// add adds what the processes were answered for one key.
func (t *tally) add(key string, reports []report) {
	first := 0
	var results []string
	for _, r := range reports {
		first += r.Answers[firstRun]
		addAll(t.answers, r.Answers)
		t.took = append(t.took, r.Took...)
		t.examples = append(t.examples, r.Examples[:min(len(r.Examples), maxExamples-len(t.examples))]...)
		for _, item := range r.Applied {
			t.applied[effect{key, item}] = struct{}{}
		}
		for _, digest := range r.Results {
			results = with(results, digest)
		}
	}
	t.keys++
	if first != 1 {
		t.noFirst++
	}
	if len(results) > 1 {
		t.differ++
	}
}

func addAll(to, from map[string]int) {
	for word, n := range from {
		to[word] += n
	}
}

// doubles is how many items of keys have more than one effect, or none though a result said that it was applied. It is
// zero when the effects could not be counted.
func (t *tally) doubles() int {
	if t.happened == nil {
		return 0
	}
	n := 0
	for _, times := range t.happened {
		if times > 1 {
			n++
		}
	}
	for e := range t.applied {
		if t.happened[e] == 0 {
			n++
		}
	}
	return n
}

// calls is how many effects executors left behind.
func (t *tally) calls() int {
	n := 0
	for _, times := range t.happened {
		n += times
	}
	return n
}

func (t *tally) confirms() int { return len(t.took) }

// unexpected counts the answers that no confirm may get.
func (t *tally) unexpected() int {
	return t.confirms() - t.answers[firstRun] - t.answers[replay] - t.answers[inProgress]
}

// failures is everything that is not as promised; none if all is.
func (t *tally) failures() []string {
	var f []string
	fail := func(n int, what string) {
		if n != 0 {
			f = append(f, fmt.Sprintf("%d %s", n, what))
		}
	}
	fail(t.doubles(), "double effects: items with more than one effect, or with none that were said to be applied")
	fail(t.noFirst, "keys without exactly one first run")
	fail(t.differ, "keys whose results do not all tell the same")
	for _, word := range slices.Sorted(maps.Keys(t.answers)) {
		if !expected(word) {
			fail(t.answers[word], "answers "+word)
		}
	}
	return f
}

// percentile is the latency that p of 100 confirms do not exceed. took must be in order.
func (t *tally) percentile(p int) time.Duration {
	if len(t.took) == 0 {
		return 0
	}
	rank := (len(t.took)*p + 99) / 100 // rounded up: the nearest rank
	return t.took[max(rank, 1)-1]
}

// sum is all modes together, with the latencies in order.
func sum(all []*tally) *tally {
	s := newTally("total")
	s.happened = counts{}
	for _, t := range all {
		s.keys += t.keys
		s.noFirst += t.noFirst
		s.differ += t.differ
		s.elapsed += t.elapsed
		s.took = append(s.took, t.took...)
		addAll(s.answers, t.answers)
		addAllEffects(s, t)
	}
	slices.Sort(s.took)
	return s
}

// addAllEffects relies on keys being of one mode only. Effects that could not be counted are left out.
func addAllEffects(to, from *tally) {
	if from.happened == nil {
		return
	}
	maps.Copy(to.applied, from.applied)
	maps.Copy(to.happened, from.happened)
}
