package fencetest

import (
	"fmt"

	"github.com/confirmexec/confirmexec/fencing"
)

// restartCounts restarts between all numbers that may only rise.
func restartCounts[TTx any](k *kit[TTx]) {
	var o fencing.Office
	var c fencing.Caller
	for i := range 4 {
		nextOffice := k.takeOffice()
		k.rule(nextOffice.Number > o.Number, "the number of an office only rises, over a restart too", o, nextOffice)
		k.approve(nextOffice)
		k.restart()
		next := k.activate(nextOffice, fmt.Sprint("boot-", i))
		k.rule(next.Says.Generation > c.Says.Generation, "a session's generation only rises, over a restart too", c, next)
		k.restart()
		k.writes(next, "the current session, after a restart")
		if i > 0 {
			k.fencedOut(c, "what was fenced before a restart is fenced after it", fenced...)
		}
		o, c = nextOffice, next
	}
	k.checkHistory()
}

// restartToken restarts between tokens.
func restartToken[TTx any](k *kit[TTx]) {
	_, c := k.active()
	k.shows(c, 5, "permit-5")
	k.restart()
	k.stale(c, 4, "permit-4", 5, "a token that was seen before a restart is remembered after it")
	k.stale(c, 5, "permit-6", 5, "and its holder too")
	k.shows(c, 6, "permit-6")
	k.restart()
	k.stale(c, 5, "permit-5", 6, "a token that was seen before a restart is remembered after it")
	k.checkHistory()
}

// restartAdmission restarts between changes of admission, tasks and reservations, as far as there are any.
func restartAdmission[TTx any](k *kit[TTx]) {
	c, generation := k.started()
	for i := range 3 {
		k.restart()
		generation = k.opens(c, fmt.Sprint("open-", i), generation)
		k.restart()
		k.ok(k.open(c), "new work while admission is open, after a restart")
		generation = k.closes(c, fmt.Sprint("close-", i), generation, 1)
		k.restart()
		k.closed(c, "new work is refused while admission is closed, after a restart too")
	}
	k.checkHistory()
}

func restartTask[TTx any](k *kit[TTx]) {
	c, revision := k.task()
	for i := range 3 {
		k.restart()
		revision = k.controls(c, fencing.ActionPause, revision, "")
		k.restart()
		revision = k.controls(c, fencing.ActionResume, revision, fmt.Sprint("authorization-", i+1))
	}
	k.checkHistory()
}

func restartPermits[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	var last fencing.Reservation
	for i := range 3 {
		r := k.reserve(c, fmt.Sprint("reservation-", i))
		k.rule(r.Token > last.Token, "a resource's tokens only rise, over a restart too", last, r)
		k.restart()
		k.ends(c, r.Lease, &fencing.Evidence{})
		k.restart()
		last = r
	}
	k.checkHistory()
}
