package dispatch

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// report is what came of a scenario.
type report struct {
	name, title string
	story       []string
	steps       []note // each with its answer
	told        answer // the decisive one
	calls       int    // on the adapter, counted in its ledger
	notes       []note
	differences []string
	diagram     string // of what happened, for Mermaid
}

type note struct{ name, text string }

// expectation is what a scenario must come to.
type expectation struct {
	answer string
	calls  int
}

// say adds to the report what happened.
func (r *report) say(format string, args ...any) {
	r.story = append(r.story, fmt.Sprintf(format, args...))
}

// note adds a line to the report.
func (r *report) note(name, format string, args ...any) {
	r.notes = append(r.notes, note{name, fmt.Sprintf(format, args...)})
}

// expect reports a difference unless ok.
func (r *report) expect(ok bool, format string, args ...any) {
	if !ok {
		r.differences = append(r.differences, fmt.Sprintf(format, args...))
	}
}

// compare reports what differs from the table.
func (r *report) compare(want expectation) {
	r.expect(r.told.word() == want.answer, "the answer: %q, not %q", r.told.word(), want.answer)
	r.expect(r.calls == want.calls, "adapter calls: %d, not %d", r.calls, want.calls)
}

// line is a report for a program.
func (r *report) line() ([]byte, error) {
	return json.Marshal(struct {
		Scenario     string `json:"scenario"`
		Answer       string `json:"answer"`
		AdapterCalls int    `json:"adapter_calls"`
		OK           bool   `json:"ok"`
	}{r.name, r.told.word(), r.calls, len(r.differences) == 0})
}

// width is how wide the text is, and margin where the right-hand side of a report begins.
const (
	width  = 96
	margin = "                  "
)

// print writes the report for a person.
func (r *report) print(w io.Writer) {
	head := "── " + r.name + ": " + r.title + " "
	fmt.Fprintf(w, "\n%s%s\n%s\n\n", head, strings.Repeat("─", max(width-utf8.RuneCountInString(head), 0)),
		wrap(strings.Join(r.story, " "), ""))
	for i, step := range r.steps {
		name := map[bool]string{true: "steps"}[i == 0]
		row(w, name, step.name+": "+step.text)
	}
	row(w, "answer", r.told.word())
	row(w, "adapter calls", fmt.Sprintf("%d in its ledger", r.calls))
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

// row writes a line of the report, wrapped.
func row(w io.Writer, name, text string) { fmt.Fprintf(w, "  %-16s%s\n", name, wrap(text, margin)) }

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
