package dispatch

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// event is one call between two of those who take part, or what became of one of them. All processes of a stage write theirs into one
// file, so that what a killed process did is not lost.
type event struct {
	From, To string
	What     string
	Said     string
	Lost     bool // the reply did not arrive
	Begun    int64
	Ended    int64 // 0: it is no call, but something that happened to From
}

// trace is the file of a stage's events. The empty one keeps none.
type trace string

var traceLock sync.Mutex

// call enters a call that began at a time and has just ended. What cannot be entered is not: the trace is for people.
func (t trace) call(e event, begun time.Time) {
	e.Begun, e.Ended = begun.UnixNano(), time.Now().UnixNano()
	t.add(e)
}

// happened enters what happened to somebody.
func (t trace) happened(to, what string) {
	t.add(event{From: to, What: what, Begun: time.Now().UnixNano()})
}

func (t trace) add(e event) {
	if t != "" {
		_ = writeLine(&traceLock, string(t), e, func(*os.File) error { return nil })
	}
}

// saidOf is a handler's answer in a word.
func saidOf(reply any, err error) string {
	if f, ok := contract.FailureOf(err); ok {
		return (answer{Failure: &failure{Reason: f.Reason}}).word()
	}
	if err != nil {
		return "error"
	}
	if m, ok := reply.(interface{ GetReceipt() *pb.Receipt }); ok {
		if r, err := grpcerr.ReceiptFromProto(m.GetReceipt()); err == nil {
			return (answer{Receipt: &r}).word()
		}
	}
	return "ok"
}

// diagram writes the events as a Mermaid sequence diagram. The same call with the same answer, again and again, is told once.
func (t trace) diagram(w io.Writer) error {
	events, err := readLines[event](string(t))
	if err != nil {
		return err
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.Begun, b.Begun) })
	events = slices.CompactFunc(events, func(a, b event) bool {
		return a.From == b.From && a.To == b.To && a.What == b.What && a.Said == b.Said
	})
	type arrow struct {
		at   int64
		text string
	}
	var arrows []arrow
	for _, e := range events {
		if e.Ended == 0 {
			arrows = append(arrows, arrow{e.Begun, fmt.Sprintf("Note over %s: %s", e.From, e.What)})
			continue
		}
		back := map[bool]string{false: "-->>", true: "--x"}[e.Lost]
		arrows = append(arrows, arrow{e.Begun, e.From + "->>" + e.To + ": " + e.What}, arrow{e.Ended, e.To + back + e.From + ": " + e.Said})
	}
	slices.SortStableFunc(arrows, func(a, b arrow) int { return cmp.Compare(a.at, b.at) })
	fmt.Fprintln(w, "sequenceDiagram")
	for _, name := range participants {
		if slices.ContainsFunc(events, func(e event) bool { return e.From == name || e.To == name }) {
			fmt.Fprintln(w, "  participant "+name)
		}
	}
	for _, a := range arrows {
		fmt.Fprintln(w, "  "+strings.ReplaceAll(a.text, ";", ","))
	}
	return nil
}

// participants are in the order of the columns.
var participants = []string{"queue", roleDispatcher, roleAgent, "stranger", "adapter", "target"}
