package fencetest

import (
	"fmt"
	"strings"

	"github.com/confirmexec/confirmexec/fencing"
)

// The lines of the log. Each is written in the transaction whose effect it tells, so that their order is the order of the commits.

func officeLine(o fencing.Office) string { return fmt.Sprintf("office %d %s", o.Number, o.Epoch) }

func sessionLine(c fencing.Caller) string {
	return fmt.Sprintf("session %s %d %s", c.Peer, c.Says.Generation, c.Epoch)
}

func writeLine(c fencing.Caller) string {
	return fmt.Sprintf("write %s %d %s", c.Peer, c.Says.Generation, c.Epoch)
}

func tokenLine(resource string, token int64, holder string) string {
	return fmt.Sprintf("token %s %d %s", resource, token, holder)
}

// history reads a log from its start, and knows what stands after each line.
type history struct {
	number     int64             // of the office
	epoch      string            // that is active
	epochs     map[string]bool   // that were ever active
	generation map[string]int64  // of each peer's session
	activated  map[string]string // the epoch that each peer's session was activated with
	token      map[string]int64  // that each resource saw last
	holder     map[string]string // of that
	chain      map[string]int64  // the generation or revision of everything else that counts
	over       map[string]string // why nothing may follow, for what has ended
	once       map[string]bool   // what may happen once
}

func newHistory() *history {
	return &history{
		epochs: map[string]bool{}, generation: map[string]int64{}, activated: map[string]string{}, token: map[string]int64{},
		holder: map[string]string{}, chain: map[string]int64{}, over: map[string]string{}, once: map[string]bool{},
	}
}

// checkHistory fails the test unless the log is one that the rules allow (J1, J2, J3, J4, J9, J10, J13).
func (k *kit[TTx]) checkHistory() {
	k.Helper()
	h := newHistory()
	lines := k.lines()
	for i, line := range lines {
		rule := h.next(line)
		k.rule(rule == "", rule, line, "after:\n"+strings.Join(lines[max(0, i-10):i], "\n"))
	}
}

// next reads a line, and says which rule it breaks; empty: none.
func (h *history) next(line string) string {
	f := strings.Fields(line)
	if len(f) < 2 {
		return "the harness's log tells the lines that were appended"
	}
	switch f[0] {
	case "office":
		return h.office(number(f[1]), f[2])
	case "session":
		return h.session(f[1], number(f[2]), f[3])
	case "write":
		return h.write(f[1], number(f[2]), f[3])
	case "token":
		return h.show(f[1], number(f[2]), f[3])
	case "count":
		return h.count(f[1], number(f[2]), number(f[3]))
	case "end":
		h.over[f[1]] = "after " + line
	case "once":
		return h.onlyOnce(f[1], f[2])
	}
	return ""
}

func number(text string) (n int64) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

func (h *history) office(number int64, epoch string) string {
	switch {
	case number <= h.number:
		return "J1 the number of an office only rises"
	case h.epochs[epoch]:
		return "R111 an epoch is never used again"
	}
	h.number, h.epoch, h.epochs[epoch] = number, epoch, true
	return ""
}

func (h *history) session(peer string, generation int64, epoch string) string {
	switch {
	case generation <= h.generation[peer]:
		return "J1 J2 a session's generation only rises, and no two sessions have one"
	case epoch != h.epoch:
		return "J3 a session is activated with the epoch that is active when it commits"
	}
	h.generation[peer], h.activated[peer] = generation, epoch
	return ""
}

func (h *history) write(peer string, generation int64, epoch string) string {
	switch {
	case epoch != h.epoch:
		return "J3 J4 nothing is written under an epoch after another one became active"
	case generation != h.generation[peer] || epoch != h.activated[peer]:
		return "J3 J4 nothing is written in a session after another one became current"
	}
	return ""
}

func (h *history) show(resource string, token int64, holder string) string {
	switch {
	case token < h.token[resource]:
		return "J4 the tokens that a resource accepts never fall"
	case token == h.token[resource] && holder != h.holder[resource]:
		return "J2 a token has one holder"
	}
	h.token[resource], h.holder[resource] = token, holder
	return ""
}

// count is a change of what counts by one, such as an admission generation or a task's revision.
func (h *history) count(name string, before, after int64) string {
	switch {
	case h.over[name] != "":
		return "J10 nothing follows what is over for ever: " + h.over[name]
	case before != h.chain[name] && h.chain[name] != 0:
		return "J1 a change begins from the number that stands"
	case after != before+1:
		return "J1 J9 a change counts on by one"
	}
	h.chain[name] = after
	return ""
}

// onlyOnce is something that may happen once, unless it has ended before.
func (h *history) onlyOnce(name, what string) string {
	switch {
	case h.over[name] != "":
		return "J11 J13 nothing follows what is over: " + h.over[name]
	case h.once[name+" "+what]:
		return "J9 J13 this happens once"
	}
	h.once[name+" "+what] = true
	return ""
}
