package fencetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

// gate is a gate that is open, as its durable admission is.
func (k *kit[TTx]) gate() (g Gate, c fencing.Caller, generation int64) {
	k.Helper()
	c, generation = k.opened()
	return k.newGate(), c, generation
}

func (k *kit[TTx]) newGate() Gate {
	k.Helper()
	g, err := k.Gate(k.ctx, agent)
	k.ok(err, "a gate of an admission")
	return g
}

func (k *kit[TTx]) entered(g Gate, callID string) (leave func()) {
	k.Helper()
	leave, err := g.Enter(callID)
	k.ok(err, "to register a call while the gate is open")
	return leave
}

func (k *kit[TTx]) shut(g Gate, rule string) {
	k.Helper()
	_, err := g.Enter("late")
	k.refused(err, rule, contract.FailedPrecondition)
}

func gateCounts[TTx any](k *kit[TTx]) {
	g, _, generation := k.gate()
	one, two := k.entered(g, "call-1"), k.entered(g, "call-2")
	active := g.Close(generation)
	k.rule(active == 2, "a close counts the calls that are registered", active)
	k.shut(g, "no call is registered after a close")
	ended, end := context.WithCancel(k.ctx)
	end()
	err := g.Drain(ended)
	code, _ := contract.CodeOf(err)
	k.rule(code == contract.DeadlineExceeded, "a barrier that was not reached in time is DEADLINE_EXCEEDED", err)
	k.shut(g, "after that the gate stays closed")
	one()
	one()
	k.rule(g.Close(generation) == 1, "a call that has ended is counted off once", g.Close(generation))
	done := make(chan error, 1)
	go func() { done <- g.Drain(k.ctx) }()
	two()
	k.ok(<-done, "a barrier, once no call is active,")
	k.rule(g.Close(generation) == 0, "a barrier that is reached has no active call", g.Close(generation))
}

func gateGenerations[TTx any](k *kit[TTx]) {
	g, _, generation := k.gate()
	g.Close(generation + 1)
	for _, late := range []int64{generation, generation + 1} {
		k.rule(g.Open(late) != nil, "an opening that is not newer than the close comes too late", late)
		k.shut(g, "and opens nothing")
	}
	k.ok(g.Open(generation+2), "an opening that is newer than the close")
	k.entered(g, "call-1")()
}

// gateStops tries to open what was stopped, also in a new process.
func gateStops[TTx any](k *kit[TTx]) {
	g, c, generation := k.gate()
	leave := k.entered(g, "call-1")
	active := g.Stop()
	k.rule(active == 1, "a stop counts the calls that are registered", active)
	k.stop(c, "stop-1", active)
	for _, later := range []int64{generation, generation + 1, generation + 100} {
		k.rule(g.Open(later) != nil, "nothing opens a gate that was stopped", later)
		k.shut(g, "no call is registered after a stop")
	}
	leave()
	k.ok(g.Drain(k.ctx), "a stop, once no call is active,")
	k.stop(c, "stop-1", 0)
	k.restart()
	g = k.newGate()
	k.shut(g, "no call is registered after a stop, also in a new process")
	k.rule(g.Open(generation+100) != nil, "nothing opens a gate that was stopped, also in a new process")
}

// gateStarts begins a process whose admission is closed, and one that nobody started.
func gateStarts[TTx any](k *kit[TTx]) {
	k.shut(k.newGate(), "the gate of an admission that nobody started is closed")
	_, c, generation := k.gate()
	generation = k.closes(c, "close-1", generation, 0)
	k.restart()
	g := k.newGate()
	k.shut(g, "the gate of a new process is closed while admission is")
	k.rule(g.Open(generation) != nil, "an opening from before the close comes too late in a new process too")
	k.ok(g.Open(k.opens(c, "open-2", generation)), "an opening that is newer than the close")
	k.entered(g, "call-1")()
}

// gateRace registers calls while the gate is closed: each of them is counted by the close, or refused.
func gateRace[TTx any](k *kit[TTx]) {
	g, _, generation := k.gate()
	for round := range int64(50) {
		leaves := make([][]func(), crowd)
		acts := times(crowd, func(i int) error {
			leaves[i] = enterMany(g, fmt.Sprint("call-", round, "-", i, "-"))
			return nil
		})
		var active int64
		acts = append(acts, func() error {
			for range round { // a little later each time
				runtime.Gosched()
			}
			active = g.Close(generation + 2*round)
			return nil
		})
		k.ok(errors.Join(together(acts...)...), "to register calls")
		all := slices.Concat(leaves...)
		k.rule(int64(len(all)) == active, "every call that was registered is counted by the close that keeps the next ones out",
			fmt.Sprint(len(all), " registered, ", active, " counted"))
		for _, leave := range all {
			leave()
		}
		k.ok(g.Drain(k.ctx), "a barrier, once no call is active,")
		k.ok(g.Open(generation+2*round+1), "an opening that is newer than the close")
	}
}

// enterMany registers calls until the gate is closed.
func enterMany(g Gate, name string) (leaves []func()) {
	for n := range 1000 {
		leave, err := g.Enter(fmt.Sprint(name, n))
		if err != nil {
			break
		}
		leaves = append(leaves, leave)
		runtime.Gosched()
	}
	return leaves
}
