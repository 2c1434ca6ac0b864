package fencetest

import (
	"fmt"
	"time"

	"github.com/confirmexec/confirmexec/fencing"
)

// move is something that fences a caller off, with its line of the log.
type move[TTx any] struct {
	name string
	act  func(k *kit[TTx], tx TTx, o fencing.Office) error
}

func moves[TTx any]() []move[TTx] {
	return []move[TTx]{
		{"another instance takes office", moveOffice[TTx]},
		{"another session is activated", moveSession[TTx]},
	}
}

func moveOffice[TTx any](k *kit[TTx], tx TTx, _ fencing.Office) error {
	o, err := k.TakeOffice(k.ctx, tx)
	if err != nil {
		return err
	}
	return k.Append(k.ctx, tx, officeLine(o))
}

func moveSession[TTx any](k *kit[TTx], tx TTx, o fencing.Office) error {
	c := fencing.Caller{Peer: peer, Says: fencing.Binding{AgentID: agent, CellID: cell, BootID: "boot-2"}, Epoch: o.Epoch}
	generation, err := k.Activate(k.ctx, tx, o.Epoch, peer, c.Says)
	if err != nil {
		return err
	}
	c.Says.Generation = generation
	return k.Append(k.ctx, tx, sessionLine(c))
}

// guarded is a write under a check that a move takes away.
type guarded[TTx any] struct {
	name  string
	c     fencing.Caller
	check func(tx TTx) error // holds what the write needs
	write func(tx TTx) error
	move  func(tx TTx) error
}

// eachMove runs a case for each move, on an agent of its own state.
func eachMove[TTx any](test func(k *kit[TTx], g guarded[TTx])) func(k *kit[TTx]) {
	return func(k *kit[TTx]) {
		for _, m := range moves[TTx]() {
			o, c := k.active()
			test(k, guarded[TTx]{
				m.name, c,
				func(tx TTx) error { return k.Hold(k.ctx, tx, c) },
				func(tx TTx) error { return k.Append(k.ctx, tx, writeLine(c)) },
				func(tx TTx) error { return m.act(k, tx, o) },
			})
			k.checkHistory()
		}
	}
}

// moverFirst runs the writer while a move is not committed, which then is, or is rolled back.
func moverFirst[TTx any](commits bool) func(k *kit[TTx], g guarded[TTx]) {
	return func(k *kit[TTx], g guarded[TTx]) {
		before := len(k.lines())
		mover := k.begin()
		k.ok(g.move(mover.tx), g.name+": the move")
		done := make(chan error, 1)
		go func() {
			done <- k.do(func(tx TTx) error {
				if err := g.check(tx); err != nil {
					return err
				}
				return g.write(tx)
			})
		}()
		early := k.await(done, g.name+": a writer does not commit while a move of its fence is under way")
		if !commits {
			mover.rollback()
			k.ok(k.settled(done, early), g.name+": a writer, once the move was rolled back,")
			k.rule(len(k.lines()) == before+1, g.name+": a move that was rolled back leaves the writer's line", k.lines()[before:])
			return
		}
		k.ok(mover.commit(), g.name+": the commit of a move")
		k.refused(k.settled(done, early), g.name+": a writer that waited for a move is refused", refusals...)
		k.rule(len(k.lines()) == before+1, g.name+": a writer that waited for a move writes nothing", k.lines()[before:])
	}
}

// await watches a writer for a while: it waits, or it is refused. The error is of one that has returned.
func (k *kit[TTx]) await(done chan error, rule string) (early error) {
	k.Helper()
	select {
	case early = <-done:
		k.rule(early != nil, rule)
	case <-time.After(patience):
	}
	return early
}

func (k *kit[TTx]) settled(done chan error, early error) error {
	if early != nil {
		return early
	}
	return <-done
}

// writerFirst runs the move while the writer has checked, and has not written yet.
func writerFirst[TTx any](k *kit[TTx], g guarded[TTx]) {
	before := len(k.lines())
	writer := k.begin()
	k.ok(g.check(writer.tx), g.name+": a check that holds")
	done := make(chan error, 1)
	go func() { done <- k.do(g.move) }()
	var moved bool
	select {
	case err := <-done:
		k.ok(err, g.name+": a move that does not wait for a writer")
		moved = true
	case <-time.After(patience):
	}
	err := g.write(writer.tx)
	if err == nil {
		err = writer.commit()
	}
	if moved {
		k.rule(err != nil, g.name+": the transaction of a writer whose fence was moved before its commit is rolled back")
		return
	}
	k.ok(err, g.name+": the commit of a writer that holds its fence")
	k.ok(<-done, g.name+": a move that waited for a writer")
	k.rule(len(k.lines()) == before+2, g.name+": both are there", k.lines()[before:])
}

// raceWriters lets agents write, be activated and change dispatchers, all at once.
func raceWriters[TTx any](k *kit[TTx]) {
	o, c := k.active()
	current := &latest{office: o, caller: c}
	const rounds = 6
	writer := func(int) error {
		for range rounds {
			c := current.get()
			err := k.do(func(tx TTx) error { return k.write(tx, c) })
			if err != nil && !isFenced(err) {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	mover := func(i int) error {
		for r := range rounds {
			if err := current.move(k.tryTakeOffice, k.tryActivate, r%2 == i, fmt.Sprint("boot-", i, "-", r)); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	for _, err := range together(append(times(crowd/2, writer), times(2, mover)...)...) {
		k.ok(err, "each of many writers and movers at once")
	}
	k.checkHistory()
}
