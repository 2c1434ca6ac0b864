package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/confirmexec/confirmexec/contract"
)

// report is what came of a scenario.
type report struct {
	name, title string
	story       []string
	told        told // the decisive, last confirm
	calls       int  // on the executor, counted in the ledger
	notes       []note
	skipped     string // why it was not carried out
	differences []string
}

// note is one more line of a report.
type note struct{ name, text string }

// answer is the decisive one, in one word.
func (r *report) answer() string {
	if r.skipped != "" {
		return "skipped"
	}
	return r.told.word()
}

// expectation is what a scenario must come to.
type expectation struct {
	answer   string
	calls    int
	tally    contract.Tally
	replayed bool
}

// compare names everything in which r differs from what was expected; none when it is as expected.
func compare(want expectation, r *report) []string {
	if r.skipped != "" {
		return nil
	}
	var d []string
	differ := func(what string, got, want any) {
		if got != want {
			d = append(d, fmt.Sprintf("%s: %v, not %v", what, got, want))
		}
	}
	var tally contract.Tally
	var replayed bool
	if r.told.result != nil {
		tally, replayed = r.told.result.Tally(), r.told.result.Replayed
	}
	differ("the answer", r.answer(), want.answer)
	differ("executor calls", r.calls, want.calls)
	differ("the tally", fmt.Sprintf("%+v", tally), fmt.Sprintf("%+v", want.tally))
	differ("replayed", replayed, want.replayed)
	return d
}

// outcomes are the result's; none for a refusal, and for what is no longer kept.
func (r *report) outcomes() []contract.OperationItemOutcome {
	if r.told.result == nil || r.told.result.Outcomes == nil {
		return []contract.OperationItemOutcome{}
	}
	return r.told.result.Outcomes
}

// line is a report for a program.
func (r *report) line() ([]byte, error) {
	return json.Marshal(struct {
		Scenario      string                          `json:"scenario"`
		Answer        string                          `json:"answer"`
		ExecutorCalls int                             `json:"executor_calls"`
		Outcomes      []contract.OperationItemOutcome `json:"outcomes"`
		OK            bool                            `json:"ok"`
	}{r.name, r.answer(), r.calls, r.outcomes(), len(r.differences) == 0})
}

// width is how wide the text is, and margin where the right-hand side of a report begins.
const (
	width  = 96
	margin = "                  "
)

// print writes the report for a person.
func (r *report) print(w io.Writer) {
	head := "── " + r.name + ": " + r.title + " "
	fmt.Fprintf(w, "\n%s%s\n%s\n", head, strings.Repeat("─", max(width-utf8.RuneCountInString(head), 0)),
		wrap(strings.Join(r.story, " "), ""))
	fmt.Fprintln(w)
	row(w, "answer", r.answer())
	if r.skipped != "" {
		row(w, "why", r.skipped)
	} else {
		r.printTold(w)
	}
	for _, n := range r.notes {
		row(w, n.name, n.text)
	}
	if len(r.differences) == 0 {
		fmt.Fprintln(w, "  ok")
	}
	for _, d := range r.differences {
		row(w, "DIFFERS", d)
	}
}

// printTold tells the decisive answer, and how often the executor was called.
func (r *report) printTold(w io.Writer) {
	if r.told.err != nil {
		row(w, "why", r.told.err.Error())
	}
	row(w, "executor calls", fmt.Sprintf("%d in the registry's ledger", r.calls))
	r.printResult(w)
}

// printResult tells the one result three times: as a board, in prose, and by what to do about it.
func (r *report) printResult(w io.Writer) {
	res := r.told.result
	if res == nil {
		row(w, "board", "no result: this confirm was refused")
		return
	}
	fmt.Fprintf(w, "  %-16s%s\n", "board", strings.ReplaceAll(board(*res), "\n", "\n"+margin))
	row(w, "prose", res.Summary())
	for _, o := range res.Outcomes {
		if o.By != "" {
			row(w, "verdict", o.By+" on "+o.ItemID+": "+o.Detail)
		}
	}
	if recovery := res.Recovery(); recovery != nil {
		row(w, "recovery", recovery.Action+": "+recovery.Message)
	}
}

// row writes a line of the report, wrapped.
func row(w io.Writer, name, text string) { fmt.Fprintf(w, "  %-16s%s\n", name, wrap(text, margin)) }

// board is a result as a table. It and the prose are made of the same outcomes, and so cannot disagree.
func board(res contract.OperationResult) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, o := range res.Outcomes {
		provisional := map[bool]string{true: "provisional"}[o.Provisional]
		fmt.Fprintf(table, "%s\t%s\t%s\n", o.ItemID, o.State, strings.Join(filled(o.Ref, string(o.Reason), provisional), ", "))
	}
	_ = table.Flush() // a Builder takes everything
	t := res.Tally()
	fmt.Fprintf(&b, "%d applied, %d failed, %d skipped, %d ambiguous", t.Applied, t.Failed, t.Skipped, t.Ambiguous)
	if res.Replayed {
		b.WriteString(" (replayed)")
	}
	return b.String()
}

func filled(texts ...string) []string {
	var kept []string
	for _, t := range texts {
		if t != "" {
			kept = append(kept, t)
		}
	}
	return kept
}

// wrap breaks text into lines of the width, all but the first after margin.
func wrap(text, margin string) string {
	var b strings.Builder
	column := len(margin)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + margin)
			column = len(margin)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
