package main

import (
	"fmt"
	"maps"
	"slices"
)

const maxNumbers = 4

// row is what is known of one requirement.
type row struct {
	Number    string `json:"number"`
	Summary   string `json:"summary"`
	Tests     int    `json:"tests"`
	First     string `json:"first,omitempty"`
	Explained string `json:"explained,omitempty"`
}

func (r row) open() bool { return r.Tests == 0 && r.Explained == "" }

// report is what is known of all of them, and what is wrong.
type report struct {
	Numbers   int      `json:"numbers"`
	Tested    int      `json:"tested"`
	Explained int      `json:"explained"`
	Open      int      `json:"open"`
	Rows      []row    `json:"requirements"`
	Problems  []string `json:"problems"`
}

func newReport(reqs []requirement, tests []test, explained map[string]explanation) *report {
	r := &report{Numbers: len(reqs), Problems: []string{}}
	rows := map[string]*row{}
	for _, q := range reqs {
		rows[q.number] = &row{Number: q.number, Summary: q.summary}
	}
	r.count(rows, tests)
	r.explain(rows, explained)
	for _, q := range reqs {
		r.add(*rows[q.number])
	}
	return r
}

func (r *report) good() bool { return r.Open == 0 && len(r.Problems) == 0 }

func (r *report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

func (r *report) count(rows map[string]*row, tests []test) {
	for _, t := range tests {
		if len(t.numbers) > maxNumbers {
			r.problem("%s: %d numbers, at most %d to a test", t, len(t.numbers), maxNumbers)
		}
		for _, n := range t.numbers {
			switch known := rows[n]; {
			case known == nil:
				r.problem("%s: there is no %s", t, n)
			case known.Tests == 0:
				known.First = t.String()
				fallthrough
			default:
				known.Tests++
			}
		}
	}
}

func (r *report) explain(rows map[string]*row, explained map[string]explanation) {
	byLine := func(a, b string) int { return explained[a].line - explained[b].line }
	for _, n := range slices.SortedFunc(maps.Keys(explained), byLine) {
		e := explained[n]
		switch known := rows[n]; {
		case known == nil:
			r.problem("%s:%d: there is no %s", explanationsFile, e.line, n)
		case known.Tests > 0:
			r.problem("%s:%d: %s needs no explanation, it has a test: %s", explanationsFile, e.line, n, known.First)
		default:
			known.Explained = e.why + "; instead: " + e.instead
		}
	}
}

func (r *report) add(known row) {
	r.Rows = append(r.Rows, known)
	switch {
	case known.Tests > 0:
		r.Tested++
	case known.open():
		r.Open++
	default:
		r.Explained++
	}
}
