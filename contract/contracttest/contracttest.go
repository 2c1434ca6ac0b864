// Package contracttest is the conformance suite of the contract: it runs the language-neutral vectors of testdata on an
// implementation, which may be one of another repository. Call [Run] from a test:
//
//	contracttest.Run(t, confirmexec.Vectors, contracttest.Implementation{IsStale: mine.IsStale, …})
//
// The names of the subtests are the vectors' own, topic and name, and are stable. Every failure tells what was wanted and what came.
package contracttest

import (
	"cmp"
	"io/fs"
	"slices"
	"testing"
)

// Run runs every vector in vectors, which is confirmexec.Vectors or another file system with the same folders, as a subtest.
// Topics that the implementation has no function for are skipped, and named in the log; with Strict they fail.
func Run(t *testing.T, vectors fs.FS, i Implementation) {
	t.Helper()
	all, problems := load(vectors)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Vector, p.Problem)
	}
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			switch {
			case topic.has(i):
			case i.Strict:
				t.Fatalf("the implementation has no function for %s", topic.name)
			default:
				t.Skipf("the implementation has no function for %s", topic.name)
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
	Vector  string // its topic and its name, such as "staleness/both moved"; the topic alone, if it is about all of them
	Problem string
}

// Check runs the same vectors without a test, and returns what is wrong, in the order of their names: nothing for an implementation
// that conforms.
func Check(vectors fs.FS, i Implementation) []Failure {
	all, failures := load(vectors)
	for _, topic := range topics {
		if !topic.has(i) {
			if i.Strict {
				failures = append(failures, Failure{topic.name, "the implementation has no function for it"})
			}
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
