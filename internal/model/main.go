package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	traces := flag.Bool("traces", false, "print the counterexample of every seeded bug, step by step")
	only := flag.String("only", "", "check only variants whose name contains this")
	flag.Parse()
	if !run(os.Stdout, os.Stderr, *only, *traces) {
		os.Exit(1)
	}
}

// run checks the variants and prints their table; it is true when every one is as expected.
func run(out, status io.Writer, only string, traces bool) bool {
	start, ok, n, total := time.Now(), true, 0, 0
	fmt.Fprintln(out, header())
	all := variants()
	for i := range all {
		v := &all[i]
		if !strings.Contains(v.name, only) {
			continue
		}
		r := explore(v, func(states int) {
			fmt.Fprintf(status, "\r%3d/%d %9d states, %3.0f s ", i+1, len(all), total+states, time.Since(start).Seconds())
		})
		n, total = n+1, total+r.states
		ok = r.asExpected() && ok
		fmt.Fprintf(status, "\r%60s\r", "")
		fmt.Fprintln(out, r.row())
		if traces || !r.asExpected() {
			fmt.Fprint(out, r.traces())
		}
	}
	verdict := "every variant is as expected"
	if !ok {
		verdict = "FAILED: not every variant is as expected"
	}
	fmt.Fprintf(out, "%d variants, %d states, %.1f s: %s\n", n, total, time.Since(start).Seconds(), verdict)
	return ok && n > 0
}

func header() string {
	return fmt.Sprintf("%-68s %8s %9s %5s  %-22s %6s", "variant", "states", "steps", "depth", "result", "ms")
}

// row is a result's line of the table. After a broken property stands the length of the shortest way to it.
func (r *result) row() string {
	text := "holds"
	if len(r.findings) > 0 {
		var found []string
		for _, f := range r.findings {
			found = append(found, fmt.Sprintf("%s/%d", f.property, len(f.steps)))
		}
		text = strings.Join(found, " ")
	}
	if !r.asExpected() {
		text += " UNEXPECTED"
	}
	return fmt.Sprintf("%-68s %8d %9d %5d  %-22s %6d",
		r.variant.name, r.states, r.transitions, r.depth, text, r.elapsed.Milliseconds())
}

// asExpected says whether what was to be found was found, and nothing where nothing was.
func (r *result) asExpected() bool {
	if len(r.variant.expect) == 0 {
		return len(r.findings) == 0
	}
	for _, p := range r.variant.expect {
		if !r.found(p) {
			return false
		}
	}
	return true
}

// traces are the counterexamples, as readable steps.
func (r *result) traces() string {
	var b strings.Builder
	for _, f := range r.findings {
		fmt.Fprintf(&b, "    %s is broken after %d steps:\n", f.property, len(f.steps))
		for i, step := range f.steps {
			fmt.Fprintf(&b, "    %3d. %s\n", i+1, step)
		}
	}
	return b.String()
}
