package fencetest

import (
	"errors"
	"strings"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

func officeCounts[TTx any](k *kit[TTx]) {
	var before fencing.Office
	for range 5 {
		o := k.takeOffice()
		k.rule(o.Number > before.Number, "the number of an office only rises", before, o)
		k.rule(o.Epoch != "", "an office has an epoch", o)
		before = o
	}
	k.checkHistory()
}

func officeFences[TTx any](k *kit[TTx]) {
	all := make([]fencing.Office, 6)
	for i := range all {
		all[i] = k.takeOffice()
	}
	last := all[len(all)-1]
	for _, o := range all[:len(all)-1] {
		k.epochRefused(o.Epoch, last.Number, "an epoch is refused once another instance is active")
	}
	k.epochHeld(last.Epoch)
}

// officeOpaque offers epochs that an order, a prefix or a folding would let through.
func officeOpaque[TTx any](k *kit[TTx]) {
	for range 3 {
		o := k.takeOffice()
		e := string(o.Epoch)
		for _, other := range []string{
			"", "!", "0", "~", "ÿ", e + "0", "0" + e, e + " ", e[:len(e)-1], e[1:], strings.ToLower(e) + "x", strings.ToUpper(e) + "X",
		} {
			k.epochRefused(fencing.Epoch(other), o.Number, "an epoch is compared by equality, and by nothing else")
		}
		k.epochHeld(o.Epoch)
	}
}

func (k *kit[TTx]) epochRefused(e fencing.Epoch, current int64, rule string) {
	k.Helper()
	told := k.leavesNothing(func(tx TTx) error { return k.HoldOffice(k.ctx, tx, e) }, rule, contract.Aborted, contract.Unauthenticated)
	k.rule(told == current, rule+"; the refusal names the number of the office that stands", told, current)
}

func (k *kit[TTx]) epochHeld(e fencing.Epoch) {
	k.Helper()
	k.ok(k.do(func(tx TTx) error { return k.HoldOffice(k.ctx, tx, e) }), "to hold the active epoch")
}

func officeEmpty[TTx any](k *kit[TTx]) {
	for _, e := range []fencing.Epoch{"", "0", "1", "boot"} {
		k.leavesNothing(func(tx TTx) error { return k.HoldOffice(k.ctx, tx, e) },
			"a scope without an office refuses every epoch", contract.Aborted, contract.Unauthenticated)
	}
	o := k.takeOffice()
	k.rule(o.Number >= 1, "the first office has a number; 0 is none", o)
}

func officeRolledBack[TTx any](k *kit[TTx]) {
	o := k.takeOffice()
	var lost fencing.Office
	undone := errors.New("undone")
	err := k.do(func(tx TTx) (err error) {
		if lost, err = k.TakeOffice(k.ctx, tx); err == nil {
			err = undone
		}
		return err
	})
	k.rule(errors.Is(err, undone), "an instance can take office", err)
	k.epochHeld(o.Epoch)
	k.epochRefused(lost.Epoch, o.Number, "an epoch whose transaction was rolled back was never active")
	k.rule(k.takeOffice().Epoch != lost.Epoch, "and is never given out again", lost)
}

// officeRace lets many take office at once.
func officeRace[TTx any](k *kit[TTx]) {
	all := make([]fencing.Office, crowd)
	for _, err := range together(times(crowd, func(i int) (err error) {
		all[i], err = k.tryTakeOffice()
		return err
	})...) {
		k.ok(err, "each of many instances that take office at once")
	}
	k.checkHistory()
	numbers := map[int64]int{}
	for i, o := range all {
		numbers[o.Number]++
		k.rule(numbers[o.Number] == 1, "no two offices have one number", all)
		if o.Number > all[0].Number {
			all[0], all[i] = o, all[0]
		}
	}
	k.epochHeld(all[0].Epoch)
	for _, o := range all[1:] {
		k.epochRefused(o.Epoch, all[0].Number, "of many that take office at once the last one is active, and it alone")
	}
}
