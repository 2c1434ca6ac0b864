package main

import (
	"fmt"
	"slices"
	"strings"
)

// trace tells the way to state id, and the step after it, as a reader would: each process under one name throughout,
// though the states are stored with their processes in order.
func (e *explorer) trace(id int32, last *move) []string {
	var moves []move
	if last != nil {
		moves = append(moves, *last)
	}
	for ; id > 0; id = e.from[id] {
		moves = append(moves, e.by[id])
	}
	slices.Reverse(moves)
	names := []string{"confirm A", "confirm B", "confirm C", "confirm D"}
	s := e.v.initial()
	steps := make([]string, 0, len(moves))
	for _, m := range moves {
		e.take(&s, m)
		steps = append(steps, fmt.Sprintf("%s%s  [%s]", e.subject(m, names), e.actions[m.action].name, s.summary(names)))
		order := s.canonical()
		was := slices.Clone(names)
		for i, from := range order {
			names[i] = was[from]
		}
	}
	return steps
}

// subject is who takes a step.
func (e *explorer) subject(m move, names []string) string {
	name := ""
	switch who := int(m.who); {
	case who < maxConfirmers:
		name = names[who]
	case who == cancellerID:
		name = "cancel"
	case who < worldID:
		name = fmt.Sprintf("resolve %d", who-resolverID+1)
	}
	switch {
	case name == "":
		return ""
	case e.actions[m.action].by == aServer:
		return "server, for " + name + ": "
	}
	return name + ": "
}

// summary is a state in a few words.
func (s *state) summary(names []string) string {
	var b strings.Builder
	b.WriteString("key " + [...]string{"free", "executing", "completed", "tombstone"}[s.phase])
	for i := range s.confirmers {
		if s.confirmers[i].owns {
			b.WriteString(" by " + names[i][len("confirm "):])
		}
	}
	if s.out != [maxItems]outcome{} {
		fmt.Fprintf(&b, ", outcomes %v", outcomes(s.out))
	}
	if s.effects != [maxItems]uint8{} {
		fmt.Fprintf(&b, ", effects %d", int(s.effects[0])+int(s.effects[1]))
	}
	for _, f := range []struct {
		is   bool
		text string
	}{{s.phase == executing && s.leaseOver, "lease over"}, {s.moved, "moved"}, {s.expired, "expired"},
		{s.gone, "purged"}, {s.alarm, "contradiction recorded"}} {
		if f.is {
			b.WriteString(", " + f.text)
		}
	}
	for i := range s.confirmers {
		if told := s.confirmers[i].told; told != nothing {
			fmt.Fprintf(&b, "; %s told %s", names[i][len("confirm "):], told)
		}
	}
	if s.canceller.told != nothing {
		fmt.Fprintf(&b, "; cancel told %s", s.canceller.told)
	}
	return b.String()
}

func outcomes(all [maxItems]outcome) string {
	texts := [...]string{"-", "started", "applied", "failed", "skipped", "ambiguous", "absent", "provisionally absent"}
	if all[1] == none {
		return texts[all[0]]
	}
	return texts[all[0]] + " and " + texts[all[1]]
}

// String is what the caller reads.
func (a answer) String() string {
	return [...]string{
		"nothing", "done", "settled", "in progress", "ambiguous", "stale", "expired", "not minted",
		"not started", "unavailable", "fenced", "cancelled",
	}[a]
}
