package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// announce says what is going to happen.
func announce(w io.Writer, o *options, p place, db database) {
	fmt.Fprintf(w, "%d processes x %d goroutines confirm each of %d keys of %d items; %s",
		o.processes, o.goroutines, o.keys, o.items, db.about())
	if p.Connections > 0 {
		fmt.Fprintf(w, ", %d connections each", p.Connections)
	}
	fmt.Fprintln(w)
}

// text is where what a person reads goes.
func (o *options) text(s streams) io.Writer {
	if o.json {
		return s.err
	}
	return s.out
}

// conclude reports on all modes: a table, or one object a line. stopped is why not all of it was done. The error is
// errTold when something is not as promised.
func conclude(o *options, s streams, all []*tally, stopped error) error {
	for _, t := range all {
		slices.Sort(t.took)
	}
	total := sum(all)
	printTable(o.text(s), withTotal(all, total))
	ok := printFailures(o.text(s), all, stopped)
	if o.json {
		if err := printJSON(s.out, all, total); err != nil {
			return err
		}
	}
	if !ok {
		return errTold
	}
	return nil
}

// withTotal leaves a total of one out.
func withTotal(all []*tally, total *tally) []*tally {
	if len(all) == 1 {
		return all
	}
	return append(slices.Clone(all), total)
}

// row is a line of the table.
type row struct {
	name  string
	value func(t *tally) string
}

var table = []row{
	{"", func(t *tally) string { return t.mode }},
	{"keys", number(func(t *tally) int { return t.keys })},
	{"confirms", number((*tally).confirms)},
	{"first runs", number(func(t *tally) int { return t.answers[firstRun] })},
	{"replays", number(func(t *tally) int { return t.answers[replay] })},
	{"in progress", number(func(t *tally) int { return t.answers[inProgress] })},
	{"other answers", number((*tally).unexpected)},
	{"executor calls", number((*tally).calls)},
	{"double effects", number((*tally).doubles)},
	{"p50 ms", millis(func(t *tally) time.Duration { return t.percentile(50) })},
	{"p90 ms", millis(func(t *tally) time.Duration { return t.percentile(90) })},
	{"p99 ms", millis(func(t *tally) time.Duration { return t.percentile(99) })},
	{"max ms", millis(func(t *tally) time.Duration { return t.percentile(100) })},
	{"seconds", func(t *tally) string { return fmt.Sprintf("%.1f", t.elapsed.Seconds()) }},
	{"confirms per s", func(t *tally) string { return fmt.Sprintf("%.0f", t.rate()) }},
}

func number(of func(*tally) int) func(*tally) string {
	return func(t *tally) string { return fmt.Sprint(of(t)) }
}

func millis(of func(*tally) time.Duration) func(*tally) string {
	return func(t *tally) string { return fmt.Sprintf("%.1f", ms(of(t))) }
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rate is in confirms per second.
func (t *tally) rate() float64 {
	if t.elapsed <= 0 {
		return 0
	}
	return float64(t.confirms()) / t.elapsed.Seconds()
}

func printTable(w io.Writer, columns []*tally) {
	for _, r := range table {
		fmt.Fprintf(w, "%-16s", r.name)
		for _, t := range columns {
			fmt.Fprintf(w, "%18s", r.value(t))
		}
		fmt.Fprintln(w)
	}
}

// printFailures says what is not as promised, and whether everything is.
func printFailures(w io.Writer, all []*tally, stopped error) (ok bool) {
	ok = stopped == nil
	if stopped != nil {
		fmt.Fprintf(w, "FAILED %s\n", withCauses(stopped))
	}
	shown := 0
	for _, t := range all {
		for _, f := range t.failures() {
			fmt.Fprintf(w, "FAILED %s: %s\n", t.mode, f)
			ok = false
		}
		for _, e := range t.examples[:min(len(t.examples), maxExamples-shown)] {
			fmt.Fprintf(w, "  for example %s\n", strings.TrimSuffix(e.Answer+": "+e.Error, ": "))
			shown++
		}
	}
	if ok {
		fmt.Fprintln(w, "ok: each item of each key was executed once")
	}
	return ok
}

// line is a tally for a program.
type line struct {
	Mode              string  `json:"mode,omitempty"`
	Keys              int     `json:"keys"`
	Confirms          int     `json:"confirms"`
	FirstRuns         int     `json:"first_runs"`
	Replays           int     `json:"replays"`
	InProgress        int     `json:"in_progress"`
	OtherAnswers      int     `json:"other_answers"`
	ExecutorCalls     int     `json:"executor_calls"`
	DoubleEffects     int     `json:"double_effects"`
	P50               float64 `json:"p50_ms"`
	P90               float64 `json:"p90_ms"`
	P99               float64 `json:"p99_ms"`
	Max               float64 `json:"max_ms"`
	Seconds           float64 `json:"seconds"`
	ConfirmsPerSecond float64 `json:"confirms_per_second"`
}

func (t *tally) line() line {
	return line{
		Mode: t.mode, Keys: t.keys, Confirms: t.confirms(),
		FirstRuns: t.answers[firstRun], Replays: t.answers[replay], InProgress: t.answers[inProgress],
		OtherAnswers: t.unexpected(), ExecutorCalls: t.calls(), DoubleEffects: t.doubles(),
		P50: ms(t.percentile(50)), P90: ms(t.percentile(90)), P99: ms(t.percentile(99)), Max: ms(t.percentile(100)),
		Seconds: t.elapsed.Seconds(), ConfirmsPerSecond: t.rate(),
	}
}

// printJSON writes an object for each mode and then one for all, which names no mode.
func printJSON(w io.Writer, all []*tally, total *tally) error {
	out := json.NewEncoder(w)
	for _, t := range all {
		if err := out.Encode(t.line()); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	last := total.line()
	last.Mode = ""
	if err := out.Encode(last); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
