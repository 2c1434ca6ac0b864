// Package contracttest is the conformance suite of the contract: it runs the language-neutral vectors of testdata on an
// implementation, which may be one of another repository. Call [Run] from a test:
//
//	contracttest.Run(t, confirmexec.Vectors, contracttest.Implementation{IsStale: mine.IsStale, DriftOf: mine.DriftOf, …})
//
// The names of the subtests are the vectors' own, topic and name, and are stable. Every failure tells what was wanted and what came.
package contracttest

import (
	"cmp"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// Run runs every vector in vectors, which is confirmexec.Vectors or another file system with the same folders, as a subtest.
// A topic that the implementation has no function for is skipped, and named in the log; with Strict it fails. One that it has only some
// of the functions for fails, and so does the test if there is no topic at all that it has the functions for.
func Run(t *testing.T, vectors fs.FS, i Implementation) {
	t.Helper()
	all, problems := load(vectors)
	for _, p := range append(problems, nothing(i)...) {
		t.Errorf("%s: %s", p.Vector, p.Problem)
	}
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			if problem := topic.incomplete(i); problem != "" {
				t.Fatal(problem)
			}
			if topic.absent(i) {
				t.Skipf("the implementation has no %s", strings.Join(topic.needs, " and no "))
			}
			for _, v := range all[topic.name] {
				t.Run(v.Name, func(t *testing.T) {
					if err := topic.check(i, v); err != nil {
						t.Error(err)
					}
				})
			}
			t.Logf("%d vectors", len(all[topic.name]))
		})
	}
}

// Failure is a vector on which an implementation is wrong.
type Failure struct {
	Vector  string // its topic and its name, such as "staleness/both moved"; the topic or "every topic" alone, if it is about all of them
	Problem string
}

// Check runs the same vectors without a test, and returns what is wrong, in the order of their names: nothing for an implementation
// that conforms.
func Check(vectors fs.FS, i Implementation) []Failure {
	all, failures := load(vectors)
	failures = append(failures, nothing(i)...)
	for _, topic := range topics {
		if problem := topic.incomplete(i); problem != "" {
			failures = append(failures, Failure{topic.name, problem})
		}
		if len(topic.lacks(i)) > 0 {
			continue
		}
		for _, v := range all[topic.name] {
			if err := topic.check(i, v); err != nil {
				failures = append(failures, Failure{topic.name + "/" + v.Name, err.Error()})
			}
		}
	}
	slices.SortStableFunc(failures, func(a, b Failure) int { return cmp.Compare(a.Vector, b.Vector) })
	return failures
}

// topics are what there are vectors about, in the order of the contract's documents.
var topics = slices.Concat(documentTopics, outcomeTopics, digestTopics, failureTopics, receiptTopics, []topic{keyTopic}, fencingTopics)
