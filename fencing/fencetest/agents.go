package fencetest

import (
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

// The kit's agent.
const (
	peer  = "spiffe://cell-1/agent-1" // as its certificate says
	agent = "agent-1"
	cell  = "cell-1"
)

// takeOffice makes a new instance the active one, and writes that into the log.
func (k *kit[TTx]) takeOffice() fencing.Office {
	k.Helper()
	o, err := k.tryTakeOffice()
	k.ok(err, "a new instance that takes office")
	return o
}

func (k *kit[TTx]) tryTakeOffice() (o fencing.Office, err error) {
	err = k.do(func(tx TTx) (err error) {
		if o, err = k.TakeOffice(k.ctx, tx); err != nil {
			return err
		}
		return k.Append(k.ctx, tx, officeLine(o))
	})
	return o, err
}

// approve approves the kit's agent.
func (k *kit[TTx]) approve(o fencing.Office) {
	k.Helper()
	k.ok(k.do(func(tx TTx) error { return k.Approve(k.ctx, tx, o.Epoch, peer, agent, cell) }), "the approval of an agent")
}

// activate makes a new session of the kit's agent, and returns its caller.
func (k *kit[TTx]) activate(o fencing.Office, boot string) fencing.Caller {
	k.Helper()
	c, err := k.tryActivate(o, boot)
	k.ok(err, "the activation of an agent that was approved")
	return c
}

func (k *kit[TTx]) tryActivate(o fencing.Office, boot string) (fencing.Caller, error) {
	c := fencing.Caller{Peer: peer, Says: fencing.Binding{AgentID: agent, CellID: cell, BootID: boot}, Epoch: o.Epoch}
	err := k.do(func(tx TTx) (err error) {
		says := fencing.Binding{AgentID: agent, CellID: cell, BootID: boot}
		if c.Says.Generation, err = k.Activate(k.ctx, tx, o.Epoch, peer, says); err != nil {
			return err
		}
		return k.Append(k.ctx, tx, sessionLine(c))
	})
	return c, err
}

// active is an agent with a current session, and its dispatcher.
func (k *kit[TTx]) active() (fencing.Office, fencing.Caller) {
	k.Helper()
	o := k.takeOffice()
	k.approve(o)
	return o, k.activate(o, "boot-1")
}

// write is what a caller does in a transaction: it holds its fence, and writes a line.
func (k *kit[TTx]) write(tx TTx, c fencing.Caller) error {
	if err := k.Hold(k.ctx, tx, c); err != nil {
		return err
	}
	return k.Append(k.ctx, tx, writeLine(c))
}

// writes fails the test unless c can write.
func (k *kit[TTx]) writes(c fencing.Caller, who string) {
	k.Helper()
	k.ok(k.do(func(tx TTx) error { return k.write(tx, c) }), "a write by "+who)
}

// fencedOut fails the test unless c can write nothing.
func (k *kit[TTx]) fencedOut(c fencing.Caller, rule string, codes ...contract.FailureCode) (current int64) {
	k.Helper()
	return k.leavesNothing(func(tx TTx) error { return k.Hold(k.ctx, tx, c) }, rule, codes...)
}
