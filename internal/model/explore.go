package main

import (
	"math"
	"time"
)

// move is a step that was taken: which action, by which process.
type move struct {
	action uint8
	who    uint8
}

// explorer visits every reachable state of a variant, breadth first, so that what it finds is found by a shortest way.
type explorer struct {
	v       *variant
	actions []action
	seen    map[state]int32
	states  []state
	from    []int32
	by      []move
	taken   []bool // which actions were ever taken
	turn    turn
	next    state  // the state that a step is being taken on
	back    []edge // the steps of recovery, from the state that they reach to the one that they start in
	res     result
}

type edge struct{ to, from int32 }

// finding is a property that was found broken, and a shortest way there.
type finding struct {
	property property
	steps    []string
}

// result is what became of an exploration.
type result struct {
	variant     *variant
	states      int
	transitions int
	depth       int
	findings    []finding
	unused      []string // actions that were never taken
	elapsed     time.Duration
}

// explore visits the states of v; progress, if set, is told their number now and then. When v is expected to break
// properties it ends as soon as all of them are.
func explore(v *variant, progress func(states int)) result {
	start := time.Now()
	e := &explorer{v: v, actions: actions(v), seen: map[state]int32{}, res: result{variant: v}}
	e.taken = make([]bool, len(e.actions))
	e.add(v.initial(), -1, move{})
	for id := int32(0); int(id) < len(e.states) && !e.done(); id++ {
		if progress != nil && id%10_000 == 0 {
			progress(len(e.states))
		}
		e.expand(id)
	}
	if !e.done() {
		e.deadEnds()
	}
	for i := range e.actions {
		if !e.taken[i] {
			e.res.unused = append(e.res.unused, e.actions[i].name)
		}
	}
	e.res.states, e.res.elapsed = len(e.states), time.Since(start)
	e.res.depth = e.depth(int32(len(e.states) - 1))
	return e.res
}

// done says whether everything that was expected has been found.
func (e *explorer) done() bool {
	if len(e.v.expect) == 0 {
		return len(e.res.findings) > 0
	}
	for _, p := range e.v.expect {
		if !e.res.found(p) {
			return false
		}
	}
	return true
}

func (r *result) found(p property) bool { return r.finding(p) != nil }

func (r *result) finding(p property) *finding {
	for i := range r.findings {
		if r.findings[i].property == p {
			return &r.findings[i]
		}
	}
	return nil
}

func (e *explorer) add(s state, from int32, by move) int32 {
	if id, ok := e.seen[s]; ok {
		return id
	}
	id := int32(len(e.states))
	e.seen[s] = id
	e.states, e.from, e.by = append(e.states, s), append(e.from, from), append(e.by, by)
	return id
}

// expand takes every step that is possible in a state.
func (e *explorer) expand(id int32) {
	for who := range processes {
		if e.states[id].idle(who) {
			continue
		}
		moves := 0
		for i := range e.actions {
			m := move{uint8(i), uint8(who)}
			if !e.actions[i].by.is(who, e.v) {
				continue
			}
			e.next = e.states[id]
			if !e.take(&e.next, m) {
				continue
			}
			moves++
			e.taken[i] = true
			e.res.transitions++
			e.judge(id, m, &e.next)
			e.next.canonical()
			if e.next == e.states[id] {
				continue
			}
			to := e.add(e.next, id, m)
			if recovers(&e.actions[i]) {
				e.back = append(e.back, edge{to, id})
			}
		}
		if moves == 0 && e.states[id].waiting(who) {
			e.report(p8, id, nil)
		}
	}
}

// The processes, by number: the confirmers, the canceller, the resolvers, and one for everything that is no process.
const (
	cancellerID = maxConfirmers
	resolverID  = cancellerID + 1
	worldID     = resolverID + maxResolvers
	processes   = worldID + 1
)

// take lets a process try an action on s.
func (e *explorer) take(s *state, m move) bool {
	a, who := &e.actions[m.action], int(m.who)
	t := &e.turn
	*t = turn{v: e.v, s: s}
	switch {
	case who < maxConfirmers:
		t.me = &s.confirmers[who]
	case who == cancellerID:
		t.me = &s.canceller
	case who < worldID:
		t.r = &s.resolvers[who-resolverID]
	}
	return a.do(t)
}

// is says whether process who takes a's steps. The server's are taken on behalf of the process whose transaction it
// is.
func (a actor) is(who int, v *variant) bool {
	switch a {
	case aConfirmer:
		return who < v.confirmers
	case aCanceller:
		return who == cancellerID
	case aResolver:
		return who >= resolverID && who < resolverID+v.resolvers
	case aServer:
		return who < v.confirmers || who == cancellerID && v.is(canCancel)
	case aClock, aWorld:
		return who == worldID
	}
	return false
}

// recovers says whether recovery may count on a step: on Resolve, on time, and on the server, which ends what is under
// way. It may not count on any process that has begun: those may all be dead.
func recovers(a *action) bool {
	return !a.fault && (a.by == aResolver || a.by == aServer || a.by == aClock)
}

// idle says whether a process has nothing to do and nothing under way.
func (s *state) idle(who int) bool {
	switch {
	case who < maxConfirmers:
		return s.confirmers[who].at == atNothing && s.confirmers[who].net == netNone
	case who == cancellerID:
		return s.canceller.at == atNothing && s.canceller.net == netNone
	}
	return false
}

// waiting says whether a process has begun a call and not answered it.
func (s *state) waiting(who int) bool {
	switch {
	case who < maxConfirmers:
		return s.confirmers[who].at != atNothing
	case who == cancellerID:
		return s.canceller.at != atNothing
	}
	return false
}

// judge looks for properties that a step breaks.
func (e *explorer) judge(id int32, m move, next *state) {
	for _, p := range broken(e.v, &e.states[id], next) {
		e.report(p, id, &m)
	}
}

func (e *explorer) report(p property, id int32, last *move) {
	if !e.res.found(p) {
		e.res.findings = append(e.res.findings, finding{p, e.trace(id, last)})
	}
}

// deadEnds looks for states from which recovery leads to no settled one, by going back from all that are settled.
func (e *explorer) deadEnds() {
	alive := make([]bool, len(e.states))
	var todo []int32
	for id := range e.states {
		if e.states[id].settled() {
			alive[id] = true
			todo = append(todo, int32(id))
		}
	}
	first, list := e.byTarget()
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range list[first[id]:first[id+1]] {
			if !alive[from] {
				alive[from] = true
				todo = append(todo, from)
			}
		}
	}
	for id := range alive {
		if !alive[id] {
			e.report(p8, int32(id), nil)
			return
		}
	}
}

// byTarget sorts the steps of recovery: those that reach state id start in list[first[id]:first[id+1]].
func (e *explorer) byTarget() (first, list []int32) {
	first = make([]int32, len(e.states)+1)
	for _, b := range e.back {
		first[b.to+1]++
	}
	for i := 1; i < len(first); i++ {
		first[i] += first[i-1]
	}
	list = make([]int32, len(e.back))
	at := append([]int32(nil), first...)
	for _, b := range e.back {
		list[at[b.to]] = b.from
		at[b.to]++
	}
	return first, list
}

func (e *explorer) depth(id int32) int {
	n := 0
	for ; id > 0 && n < math.MaxInt32; id = e.from[id] {
		n++
	}
	return n
}
