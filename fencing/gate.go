package fencing

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/confirmexec/confirmexec/contract"
)

// Gate is the admission of one process: the register of its active calls, behind one lock with whether another may begin. Whoever
// makes a call registers it with [Gate.Enter] before anything of it is live. So once the gate is closed, the calls that it counts
// are all that there are, and their number only falls (R89).
//
// The durable [Admission] and the Gate go together, the Gate first for what closes and last for what opens. The Apply of the broker's
// mutation, which neither a fenced request nor a repeated one gets to, is
//
//	active := gate.Close(request.ExpectedGeneration) // for a close
//	receipt, err := fence.SetAdmission(ctx, agent, request, active)
//
// and once an opening is committed, gate.Open(receipt.After). A close that is refused after that or is not known to be committed
// leaves the gate closed, until a newer generation opens it.
//
// The zero Gate is closed and knows of no call. A Gate is safe for concurrent use.
type Gate struct {
	mu         sync.Mutex
	open       bool
	stopped    bool             // for ever
	generation int64            // the newest that the gate was opened with or closed for
	calls      map[string]int64 // the active ones, each with the number of its registration; 0: begun before this process
	entered    int64            // registrations so far
	changed    chan struct{}    // closed at the next change, for those who wait; nil when nobody does
}

// NewGate returns the gate of a process that has just started, as its durable admission stands: once that is stopped, no gate is
// ever open again (R92). Active are calls of a process before this one that may still be live: no barrier is reached before they
// have ended, by [Gate.Leave].
func NewGate(a Admission, active ...string) *Gate {
	g := &Gate{open: a.Admit() == nil, stopped: a.Stopped, generation: a.Generation, calls: map[string]int64{}}
	for _, id := range active {
		g.calls[id] = 0
	}
	return g
}

// Enter registers a call, before it is live; leave says that it has ended, and may be called again. The error is ErrClosed; after
// a stop it is ErrTerminal, whose cause ErrClosed is; *[contract.InvalidError] for a call without an id;
// [contract.ErrSecondOperation] for a call that is registered.
func (g *Gate) Enter(callID string) (leave func(), err error) {
	if callID == "" {
		return nil, &contract.InvalidError{Path: "/call_id", Problem: "must not be empty"}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := (Admission{Generation: g.generation, Open: g.open, Stopped: g.stopped}).Admit(); err != nil {
		return nil, err
	}
	if _, active := g.calls[callID]; active {
		return nil, contract.ErrSecondOperation
	}
	if g.calls == nil {
		g.calls = map[string]int64{}
	}
	g.entered++
	number := g.entered
	g.calls[callID] = number
	return func() { g.leave(callID, number) }, nil
}

// Leave says that a call has ended which a process before this one began: see [NewGate]. A call that Enter registered ends by what
// Enter returned alone.
func (g *Gate) Leave(callID string) { g.leave(callID, 0) }

func (g *Gate) leave(callID string, number int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if registered, active := g.calls[callID]; active && registered == number {
		delete(g.calls, callID)
		g.change()
	}
}

// Calls are the ids of the registered calls, sorted.
func (g *Gate) Calls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.calls))
}

// Open opens the gate after an opening that made this durable generation was committed. One that is not newer than what the gate
// was closed for comes too late, and is ErrMoved; after a stop the error is ErrTerminal.
func (g *Gate) Open(generation int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stopped:
		return standing(ErrTerminal, g.generation)
	case generation <= g.generation:
		return standing(ErrMoved, g.generation)
	}
	g.open, g.generation = true, generation
	g.change()
	return nil
}

// Close closes the gate for a close that expects this durable generation, before that is decided on, and tells how many registered
// calls are active. No call is registered after it has returned, until a newer generation opens the gate.
//
// A generation that is older than the gate's closes nothing, and its count is no evidence: the durable generation has moved on, so
// that close will be refused. A message that slept in a queue does not shut an agent that was opened since. A generation that nobody
// made yet shuts the gate for all that are made up to it: refuse such a close from what stands durably, before Close.
func (g *Gate) Close(generation int64) (active int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if generation >= g.generation {
		g.open, g.generation = false, generation
	}
	return int64(len(g.calls))
}

// Stop closes the gate for ever, and tells how many registered calls are active.
func (g *Gate) Stop() (active int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.stopped = false, true
	return int64(len(g.calls))
}

// Drain waits until no registered call is active. The error is ErrDrainTimeout when ctx ends before: the gate stays closed, and
// Drain may be called again (R88, R90); ErrNotDrained, at once, while the gate is open, since its calls need have no end.
func (g *Gate) Drain(ctx context.Context) error {
	for {
		changed, err := g.drained()
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if changed, err = g.drained(); changed == nil {
				return err
			}
			return ErrDrainTimeout.With(context.Cause(ctx))
		}
	}
}

// drained tells whether the gate is drained, or what to wait for until it may be.
func (g *Gate) drained() (changed <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.open:
		return nil, standing(ErrNotDrained, g.generation)
	case len(g.calls) == 0:
		return nil, nil
	case g.changed == nil:
		g.changed = make(chan struct{})
	}
	return g.changed, nil
}

// change wakes those who wait.
func (g *Gate) change() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}
