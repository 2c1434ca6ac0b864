package fencetest

import (
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

func sessionCounts[TTx any](k *kit[TTx]) {
	o, c := k.active()
	k.rule(c.Says.Generation >= 1, "the first session has a generation; 0 is none", c)
	for i := range 4 {
		next := k.activate(o, fmt.Sprint("boot-", i%2)) // a boot that was there before too
		k.rule(next.Says.Generation == c.Says.Generation+1, "an activation raises the generation by one", c, next)
		c = next
	}
	k.writes(c, "the current session")
	k.checkHistory()
}

// sessionFences keeps every session that there was out, also one whose boot has come back.
func sessionFences[TTx any](k *kit[TTx]) {
	o, c := k.active()
	all := []fencing.Caller{c, k.activate(o, "boot-2"), k.activate(o, "boot-1"), k.activate(o, "boot-1")}
	last := all[len(all)-1]
	for _, old := range all[:len(all)-1] {
		current := k.fencedOut(old, "a session is fenced once a newer one is current", fenced...)
		k.rule(current == last.Says.Generation, "the refusal names the current generation", current, last)
	}
	k.writes(last, "the current session")
}

// sessionBinding spoils one part of a caller's identity at a time.
func sessionBinding[TTx any](k *kit[TTx]) {
	_, c := k.active()
	for name, spoil := range map[string]func(c *fencing.Caller){
		"another boot":                func(c *fencing.Caller) { c.Says.BootID = "boot-2" },
		"no boot":                     func(c *fencing.Caller) { c.Says.BootID = "" },
		"a boot in other letters":     func(c *fencing.Caller) { c.Says.BootID = "BOOT-1" },
		"a lower generation":          func(c *fencing.Caller) { c.Says.Generation-- },
		"a higher generation":         func(c *fencing.Caller) { c.Says.Generation++ },
		"no generation":               func(c *fencing.Caller) { c.Says.Generation = 0 },
		"a generation below nothing":  func(c *fencing.Caller) { c.Says.Generation = -1 },
		"the epoch of no dispatcher":  func(c *fencing.Caller) { c.Epoch = "" },
		"the epoch of another office": func(c *fencing.Caller) { c.Epoch += "x" },
	} {
		other := c
		spoil(&other)
		k.fencedOut(other, "a caller with "+name+" is refused", fenced...)
	}
	for name, spoil := range map[string]func(c *fencing.Caller){
		"another agent":        func(c *fencing.Caller) { c.Says.AgentID = "agent-2" },
		"no agent":             func(c *fencing.Caller) { c.Says.AgentID = "" },
		"another cell":         func(c *fencing.Caller) { c.Says.CellID = "cell-2" },
		"no cell":              func(c *fencing.Caller) { c.Says.CellID = "" },
		"another certificate":  func(c *fencing.Caller) { c.Peer += "x" },
		"a longer certificate": func(c *fencing.Caller) { c.Peer += "/" },
		"no certificate":       func(c *fencing.Caller) { c.Peer = "" },
	} {
		other := c
		spoil(&other)
		k.fencedOut(other, "a caller with "+name+" is refused", denied...)
	}
	k.writes(c, "the current session, after others were refused")
}

// sessionCurrent wants the number that stands in every refusal that has one.
func sessionCurrent[TTx any](k *kit[TTx]) {
	o, _ := k.active()
	c := k.activate(o, "boot-2")
	for _, generation := range []int64{0, c.Says.Generation - 1, c.Says.Generation + 1} {
		other := c
		other.Says.Generation = generation
		current := k.fencedOut(other, "another generation is refused", fenced...)
		k.rule(current == c.Says.Generation, "the refusal names the current generation", current, c)
	}
	next := k.takeOffice()
	k.epochRefused(o.Epoch, next.Number, "another epoch is refused")
}

func sessionOfAnother[TTx any](k *kit[TTx]) {
	o, c := k.active()
	const second = "spiffe://cell-2/agent-2"
	k.ok(k.do(func(tx TTx) error { return k.Approve(k.ctx, tx, o.Epoch, second, "agent-2", "cell-2") }), "the approval of a second agent")
	theirs := fencing.Caller{Peer: second, Says: fencing.Binding{AgentID: "agent-2", CellID: "cell-2", BootID: "boot-1"}, Epoch: o.Epoch}
	k.ok(k.do(func(tx TTx) (err error) {
		theirs.Says.Generation, err = k.Activate(k.ctx, tx, o.Epoch, second, theirs.Says)
		if err == nil {
			err = k.Append(k.ctx, tx, sessionLine(theirs))
		}
		return err
	}), "the activation of a second agent")
	k.writes(c, "the first agent")
	k.writes(theirs, "the second agent")
	posing := fencing.Caller{Peer: second, Says: c.Says, Epoch: o.Epoch}
	k.fencedOut(posing, "an agent that says to be another is refused, whatever session that has", denied...)
	k.leavesNothing(func(tx TTx) error {
		_, err := k.Activate(k.ctx, tx, o.Epoch, second, c.Says)
		return err
	}, "an agent activates no session of another", denied...)
	k.writes(c, "the agent that another one posed as")
	k.checkHistory()
}

func sessionUnapproved[TTx any](k *kit[TTx]) {
	o := k.takeOffice()
	c := fencing.Caller{Peer: peer, Says: fencing.Binding{AgentID: agent, CellID: cell, BootID: "boot-1", Generation: 1}, Epoch: o.Epoch}
	activate := func(tx TTx) error {
		_, err := k.Activate(k.ctx, tx, o.Epoch, peer, c.Says)
		return err
	}
	k.leavesNothing(activate, "nobody activates a session who was not approved", denied...)
	k.fencedOut(c, "a caller that was not approved is refused", denied...)
	k.approve(o)
	k.fencedOut(c, "an agent that has no session is refused", contract.Unauthenticated)
	for name, spoil := range map[string]func(b *fencing.Binding){
		"agent": func(b *fencing.Binding) { b.AgentID = "agent-2" }, "cell": func(b *fencing.Binding) { b.CellID = "" },
	} {
		says := c.Says
		spoil(&says)
		k.leavesNothing(func(tx TTx) error {
			_, err := k.Activate(k.ctx, tx, o.Epoch, peer, says)
			return err
		}, "an activation for another "+name+" than the approved one is refused", denied...)
	}
	k.writes(k.activate(o, "boot-1"), "an agent that was approved and activated")
}

// sessionReapproved gives the certificate to another agent: that ends the session, and its generation counts on.
func sessionReapproved[TTx any](k *kit[TTx]) {
	o, c := k.active()
	approve := func(agentID string) {
		k.ok(k.do(func(tx TTx) error { return k.Approve(k.ctx, tx, o.Epoch, peer, agentID, cell) }), "another approval of a certificate")
	}
	approve("agent-2")
	k.fencedOut(c, "the session of an agent whose approval was taken away is over", denied...)
	approve(agent)
	k.fencedOut(c, "and does not come back with the approval", fenced...)
	next := k.activate(o, "boot-1")
	k.rule(next.Says.Generation > c.Says.Generation, "generations count on over another approval", c, next)
	k.fencedOut(c, "and is not the next session either", fenced...)
	k.writes(next, "the next session")
	k.checkHistory()
}

// deposedDispatcher activates and approves with an epoch that was fenced.
func deposedDispatcher[TTx any](k *kit[TTx]) {
	o, c := k.active()
	next := k.takeOffice()
	k.leavesNothing(func(tx TTx) error { return k.Approve(k.ctx, tx, o.Epoch, "spiffe://x", "agent-9", cell) },
		"a deposed dispatcher approves nobody", fenced...)
	k.leavesNothing(func(tx TTx) error {
		_, err := k.Activate(k.ctx, tx, o.Epoch, peer, c.Says)
		return err
	}, "a deposed dispatcher activates nobody", fenced...)
	k.fencedOut(c, "a session is of the dispatcher that it was activated with", fenced...)
	c.Epoch = next.Epoch
	k.fencedOut(c, "and is not made another's by saying so", fenced...)
	k.writes(k.activate(next, "boot-1"), "a session that was activated with the active dispatcher")
	k.checkHistory()
}

func sessionRace[TTx any](k *kit[TTx]) {
	o, first := k.active()
	all := make([]fencing.Caller, crowd)
	for _, err := range together(times(crowd, func(i int) (err error) {
		all[i], err = k.tryActivate(o, fmt.Sprint("boot-", i))
		return err
	})...) {
		k.ok(err, "each of many activations at once")
	}
	k.checkHistory()
	last, generations := first, map[int64]bool{}
	for _, c := range all {
		k.rule(!generations[c.Says.Generation], "no two sessions have one generation", all)
		generations[c.Says.Generation] = true
		if c.Says.Generation > last.Says.Generation {
			last = c
		}
	}
	for _, c := range all {
		if c != last {
			k.fencedOut(c, "of many activations at once the last one is current, and it alone", fenced...)
		}
	}
	k.writes(last, "the last of many sessions")
}
