package fencetest

import (
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

// given is the session with this generation, as the dispatcher gives it to the kit's agent.
func given(o fencing.Office, boot string, generation int64) fencing.Session {
	return fencing.Session{Binding: fencing.Binding{AgentID: agent, CellID: cell, BootID: boot, Generation: generation}, Epoch: o.Epoch}
}

func (k *kit[TTx]) joining(s fencing.Session) func(tx TTx) error {
	return func(tx TTx) error { return k.Joins.Join(k.ctx, tx, peer, s) }
}

// joins joins a session, and returns its caller.
func (k *kit[TTx]) joins(s fencing.Session) fencing.Caller {
	k.Helper()
	k.ok(k.do(k.joining(s)), fmt.Sprint("to join the session of generation ", s.Generation))
	return fencing.Caller{Peer: peer, Says: s.Binding, Epoch: s.Epoch}
}

// held fails the test unless c is the current session.
func (k *kit[TTx]) held(c fencing.Caller) {
	k.Helper()
	k.ok(k.do(func(tx TTx) error { return k.Hold(k.ctx, tx, c) }), "to hold the session that was joined last")
}

// joinLater delivers sessions in an order of their own.
func joinLater[TTx any](k *kit[TTx]) {
	o := k.takeOffice()
	k.joins(given(o, "boot-1", 3))
	c := k.joins(given(o, "boot-1", 5)) // generations of other agents, or that were lost, are between
	k.held(c)
	for _, late := range []int64{1, 3, 4} {
		current := k.leavesNothing(k.joining(given(o, "boot-1", late)), "a session is never replaced by an older one", fenced...)
		k.rule(current == 5, "the refusal names the current generation", current)
	}
	k.leavesNothing(k.joining(given(o, "boot-2", 5)), "two sessions never have one generation", fenced...)
	for _, none := range []int64{0, -1} {
		k.leavesNothing(k.joining(given(o, "boot-1", none)), "a session without a generation is none", contract.InvalidArgument)
	}
	k.joins(given(o, "boot-1", 5)) // delivered again
	k.restart()
	k.held(c)
	k.leavesNothing(k.joining(given(o, "boot-1", 4)), "a session is never replaced by an older one, over a restart too", fenced...)
}

// leaveAtStart starts again with the same boot id: what was sent to the process before is refused, and stays so.
func leaveAtStart[TTx any](k *kit[TTx]) {
	o := k.takeOffice()
	old := k.joins(given(o, "boot-1", 3))
	k.restart()
	k.ok(k.do(func(tx TTx) error { return k.Joins.Leave(k.ctx, tx, peer) }), "to leave a session at a start")
	k.fencedOut(old, "what was sent to a process before is refused by the next one", fenced...)
	k.leavesNothing(k.joining(given(o, "boot-1", 2)), "a session that was left is followed by none older", fenced...)
	k.leavesNothing(k.joining(given(o, "boot-1", 3)), "nor by itself", fenced...)
	k.fencedOut(old, "and does not come back", fenced...)
	next := k.joins(given(o, "boot-1", 4))
	k.held(next)
	k.fencedOut(old, "what was sent to a process before is refused by the next one", fenced...)
}
