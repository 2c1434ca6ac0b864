package fencetest

import (
	"fmt"

	"github.com/confirmexec/confirmexec/fencing"
)

// overtaken runs a change while another one is not committed that it must not stand beside, and which is then committed.
func overtaken[TTx any](k *kit[TTx], name string, first, second func(tx TTx) error) {
	k.Helper()
	moverFirst[TTx](true)(k, guarded[TTx]{name: name, check: func(TTx) error { return nil }, write: second, move: first})
	k.checkHistory()
}

// noting is a change with a line of the log.
func (k *kit[TTx]) noting(change func(tx TTx) error, line string) func(tx TTx) error {
	return func(tx TTx) error {
		if err := change(tx); err != nil {
			return err
		}
		return k.Append(k.ctx, tx, line)
	}
}

func officeOvertakes[TTx any](k *kit[TTx]) {
	o, _ := k.active()
	overtaken(k, "an activation of a dispatcher that is being deposed",
		func(tx TTx) error { return moveOffice(k, tx, o) },
		func(tx TTx) error { return moveSession(k, tx, o) })
}

// activationFollows activates a session while another activation is not committed: it waits, and counts on from there.
func activationFollows[TTx any](k *kit[TTx]) {
	o, _ := k.active()
	first := k.begin()
	k.ok(moveSession(k, first.tx, o), "an activation")
	done := make(chan error, 1)
	go func() { done <- k.do(func(tx TTx) error { return moveSession(k, tx, o) }) }()
	early := k.await(done, "an activation does not commit while another one is under way")
	k.ok(first.commit(), "the commit of an activation")
	k.ok(k.settled(done, early), "an activation that waited for another")
	k.checkHistory()
}

func tokenOvertakes[TTx any](k *kit[TTx]) {
	_, c := k.active()
	k.shows(c, 1, "permit-1")
	showing := func(token int64) func(tx TTx) error {
		holder := fmt.Sprint("permit-", token)
		show := func(tx TTx) error { return k.Tokens.Show(k.ctx, tx, c, resource, token, holder) }
		return k.noting(show, tokenLine(resource, token, holder))
	}
	overtaken(k, "a token below one that is being shown", showing(9), showing(5))
}

func admissionOvertakes[TTx any](k *kit[TTx]) {
	c, generation := k.started()
	line := fmt.Sprintf("count admission %d %d", generation, generation+1)
	overtaken(k, "a change of admission from a generation that is being moved",
		k.noting(k.setting(c, k.request(c, "barrier-1", generation, true)), line),
		k.noting(k.setting(c, k.request(c, "barrier-2", generation, false)), line))
}

func taskOvertakes[TTx any](k *kit[TTx]) {
	c, revision := k.task()
	line := fmt.Sprintf("count task %d %d", revision, revision+1)
	controlling := func(action fencing.Action) func(tx TTx) error {
		return k.noting(k.controlling(c, fencing.Control{Action: action, ExpectedRevision: revision}), line)
	}
	overtaken(k, "a control of a task that is being stopped", controlling(fencing.ActionStop), controlling(fencing.ActionPause))
}

func consumptionOvertakes[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	p := k.issues(c, k.reserve(c, "reservation-1"), "execution-1")
	consuming := k.noting(k.consuming(c, p, now), "once consume "+p.ID)
	overtaken(k, "a permit that is being consumed", consuming, consuming)
}

func fenceOvertakes[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	r := k.reserve(c, "reservation-1")
	fence := func(tx TTx) error { return k.Permits.Fence(k.ctx, tx, c, resource, r.Lease) }
	overtaken(k, "a permit of a reservation that is being fenced",
		k.noting(fence, "end issue-"+r.ReservationID),
		k.noting(k.issuing(c, asks(r, "execution-1")), "once issue-"+r.ReservationID+" permit"))
}
