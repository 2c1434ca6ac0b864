package fencetest

import (
	"fmt"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

const resource = "line-1"

// The time of the cases is nobody's clock.
var (
	now      = time.UnixMilli(1_700_000_000_000)
	deadline = now.Add(time.Hour)
)

// opened is an agent with a current session that takes new work.
func (k *kit[TTx]) opened() (c fencing.Caller, generation int64) {
	k.Helper()
	_, c = k.active()
	if k.Admissions == nil {
		return c, 0
	}
	k.ok(k.do(func(tx TTx) error { return k.Admissions.Start(k.ctx, tx, c) }), "to start an admission")
	generation = k.refused(k.open(c), "an admission begins closed", contract.FailedPrecondition)
	return c, k.opens(c, "open-1", generation)
}

func (k *kit[TTx]) reserve(c fencing.Caller, reservationID string) fencing.Reservation {
	k.Helper()
	var r fencing.Reservation
	k.ok(k.do(func(tx TTx) (err error) {
		r, err = k.Permits.Reserve(k.ctx, tx, c, resource, reservationID)
		if err == nil {
			err = k.Append(k.ctx, tx, tokenLine("of-"+resource, r.Token, reservationID))
		}
		return err
	}), "to reserve a free resource")
	k.rule(r.Token >= 1 && r.Revision >= 1, "a reservation has a token and a revision; 0 is none", r)
	return r
}

func asks(r fencing.Reservation, executionID string) fencing.PermitRequest {
	return fencing.PermitRequest{
		Resource: resource, ReservationID: r.ReservationID, ExecutionID: executionID, ExpectedRevision: r.Revision,
		Deadline: deadline.UnixMilli(),
	}
}

// issue issues a permit, and writes that into the log.
func (k *kit[TTx]) issue(c fencing.Caller, q fencing.PermitRequest) (p fencing.Permit, err error) {
	err = k.do(func(tx TTx) (err error) {
		if p, err = k.Permits.Issue(k.ctx, tx, c, q); err != nil {
			return err
		}
		return k.Append(k.ctx, tx, "once issue-"+q.ReservationID+" permit")
	})
	return p, err
}

func (k *kit[TTx]) issues(c fencing.Caller, r fencing.Reservation, executionID string) fencing.Permit {
	k.Helper()
	p, err := k.issue(c, asks(r, executionID))
	k.ok(err, "to issue the permit of a reservation that is active")
	k.rule(p.Token == r.Token, "a permit has the token of its reservation", p, r)
	return p
}

func (k *kit[TTx]) issuing(c fencing.Caller, q fencing.PermitRequest) func(tx TTx) error {
	return func(tx TTx) error {
		_, err := k.Permits.Issue(k.ctx, tx, c, q)
		return err
	}
}

// consume consumes a permit, and writes that into the log.
func (k *kit[TTx]) consume(c fencing.Caller, p fencing.Permit) error {
	return k.do(func(tx TTx) error {
		if err := k.Permits.Consume(k.ctx, tx, c, p, now); err != nil {
			return err
		}
		if err := k.Append(k.ctx, tx, "once consume "+p.ID); err != nil {
			return err
		}
		return k.Append(k.ctx, tx, tokenLine(p.Resource, p.Token, p.ID))
	})
}

func (k *kit[TTx]) consuming(c fencing.Caller, p fencing.Permit, at time.Time) func(tx TTx) error {
	return func(tx TTx) error { return k.Permits.Consume(k.ctx, tx, c, p, at) }
}

// ends fences or releases a reservation, and writes into the log that no permit follows.
func (k *kit[TTx]) ends(c fencing.Caller, l fencing.Lease, e *fencing.Evidence) {
	k.Helper()
	k.ok(k.do(func(tx TTx) (err error) {
		if e == nil {
			err = k.Permits.Fence(k.ctx, tx, c, resource, l)
		} else {
			err = k.Permits.Release(k.ctx, tx, c, resource, l, *e)
		}
		if err == nil {
			err = k.Append(k.ctx, tx, "end issue-"+l.ReservationID)
		}
		return err
	}), "to fence or release a reservation by who holds it")
}

func permitOnce[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	p := k.issues(c, k.reserve(c, "reservation-1"), "execution-1")
	k.ok(k.consume(c, p), "to consume a permit")
	k.leavesNothing(k.consuming(c, p, now), "a permit is consumed once", refusals...)
	other := p
	other.ExecutionID = "execution-2"
	k.leavesNothing(k.consuming(c, other, now), "a permit is consumed for one execution", refusals...)
	k.restart()
	k.leavesNothing(k.consuming(c, p, now), "a permit is consumed once, also by another process", refusals...)
	k.checkHistory()
}

func permitRace[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	p := k.issues(c, k.reserve(c, "reservation-1"), "execution-1")
	won := 0
	for _, err := range together(times(crowd, func(int) error { return k.consume(c, p) })...) {
		if err == nil {
			won++
			continue
		}
		k.refused(err, "of many that consume a permit at once one does", refusals...)
	}
	k.rule(won == 1, "of many that consume a permit at once one does", won)
	k.checkHistory()
}

// permitSpoilt consumes what is not for this session, or not any more.
func permitSpoilt[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	p := k.issues(c, k.reserve(c, "reservation-1"), "execution-1")
	for name, spoil := range map[string]func(p *fencing.Permit){
		"epoch":      func(p *fencing.Permit) { p.Epoch += "x" },
		"generation": func(p *fencing.Permit) { p.Binding.Generation++ },
		"boot":       func(p *fencing.Permit) { p.Binding.BootID = "boot-9" },
		"agent":      func(p *fencing.Permit) { p.Binding.AgentID = "agent-9" },
		"token":      func(p *fencing.Permit) { p.Token = 0 },
	} {
		other := p
		spoil(&other)
		k.leavesNothing(k.consuming(c, other, now), "a permit with another "+name+" than its own is refused",
			append(denied, append(refusals, contract.InvalidArgument)...)...)
	}
	for _, late := range []time.Time{deadline, deadline.Add(time.Nanosecond), deadline.AddDate(1, 0, 0)} {
		k.leavesNothing(k.consuming(c, p, late), "at its exclusive deadline a permit is over", contract.PermissionDenied)
	}
	k.ok(k.consume(c, p), "to consume a permit after others were refused")
}

func permitClosed[TTx any](k *kit[TTx]) {
	c, generation := k.opened()
	if k.Admissions == nil {
		k.Skip("the implementation has no admission")
	}
	p := k.issues(c, k.reserve(c, "reservation-1"), "execution-1")
	generation = k.closes(c, "close-1", generation, 0)
	k.leavesNothing(k.consuming(c, p, now), "no permit is consumed while admission is closed", contract.FailedPrecondition)
	k.opens(c, "open-2", generation)
	k.ok(k.consume(c, p), "to consume the permit that was refused, once admission is open")
}

// permitEnded asks for permits of reservations that are over.
func permitEnded[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	r := k.reserve(c, "reservation-1")
	k.leavesNothing(k.issuing(c, asks(fencing.Reservation{Lease: r.Lease, Revision: r.Revision + 1}, "execution-1")),
		"a revision that does not stand is refused", contract.Aborted)
	k.ends(c, r.Lease, nil)
	for _, revision := range []int64{r.Revision, r.Revision + 1} {
		k.leavesNothing(k.issuing(c, asks(fencing.Reservation{Lease: r.Lease, Revision: revision}, "execution-1")),
			"no permit is issued for a reservation that was fenced", contract.FailedPrecondition, contract.Aborted)
	}
	k.leavesNothing(func(tx TTx) error {
		_, err := k.Permits.Reserve(k.ctx, tx, c, resource, "reservation-2")
		return err
	}, "a resource that was fenced is not free", append(refusals, contract.AlreadyExists, contract.ResourceExhausted)...)
	k.ends(c, r.Lease, &fencing.Evidence{})
	second := k.reserve(c, "reservation-2")
	k.rule(second.Token > r.Token, "the next reservation of a resource has a higher token", r, second)
	for _, revision := range []int64{r.Revision, r.Revision + 1, second.Revision} {
		k.leavesNothing(k.issuing(c, asks(fencing.Reservation{Lease: r.Lease, Revision: revision}, "execution-1")),
			"no permit is issued for a reservation that was released", contract.FailedPrecondition, contract.Aborted)
	}
	k.issues(c, second, "execution-1")
	k.checkHistory()
}

// permitVoid tells the agent that reservations have ended.
func permitVoid[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	ending := func(token int64) {
		k.ok(k.do(func(tx TTx) error { return k.Permits.End(k.ctx, tx, c, resource, token) }), "to tell that a reservation has ended")
	}
	r := k.reserve(c, "reservation-1")
	p := k.issues(c, r, "execution-1")
	k.ends(c, r.Lease, nil)
	ending(r.Token)
	k.leavesNothing(k.consuming(c, p, now), "a permit whose reservation was fenced is not consumed", refusals...)
	k.ends(c, r.Lease, &fencing.Evidence{ExecutionID: "execution-1", Result: contract.ResultNotApplied, By: "reconciler", Detail: "void"})
	next := k.issues(c, k.reserve(c, "reservation-2"), "execution-2")
	ending(r.Token) // late news
	k.leavesNothing(k.consuming(c, p, now), "late news bring no permit back", refusals...)
	k.ok(k.consume(c, next), "to consume the permit of a reservation that stands, after late news of another,")
	k.checkHistory()
}

// permitSecond asks for a second permit of an execution, and of a reservation.
func permitSecond[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	r := k.reserve(c, "reservation-1")
	k.issues(c, r, "execution-1")
	codes := append([]contract.FailureCode{contract.AlreadyExists}, refusals...)
	for _, revision := range []int64{r.Revision, r.Revision + 1} {
		for _, e := range []string{"execution-1", "execution-2"} {
			k.leavesNothing(k.issuing(c, asks(fencing.Reservation{Lease: r.Lease, Revision: revision}, e)),
				"a reservation has one permit, and an execution too", codes...)
		}
	}
	k.ends(c, r.Lease, &fencing.Evidence{ExecutionID: "execution-1", Result: contract.ResultNotApplied, By: "reconciler", Detail: "not there"})
	second := k.reserve(c, "reservation-2")
	k.leavesNothing(k.issuing(c, asks(second, "execution-1")), "an execution has one permit for ever", codes...)
	k.checkHistory()
}

// permitLeases releases what is not held, and what is not known to have ended.
func permitLeases[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	r := k.reserve(c, "reservation-1")
	k.issues(c, r, "execution-1")
	ended := fencing.Evidence{ExecutionID: "execution-1", Result: contract.ResultNotApplied, By: "reconciler", Detail: "not there"}
	releasing := func(l fencing.Lease, e fencing.Evidence) func(tx TTx) error {
		return func(tx TTx) error { return k.Permits.Release(k.ctx, tx, c, resource, l, e) }
	}
	codes := append([]contract.FailureCode{contract.InvalidArgument, contract.PermissionDenied}, refusals...)
	for name, spoil := range map[string]func(e *fencing.Evidence){
		"none":                 func(e *fencing.Evidence) { *e = fencing.Evidence{} },
		"UNKNOWN":              func(e *fencing.Evidence) { e.Result = contract.ResultUnknown },
		"ACCEPTED":             func(e *fencing.Evidence) { e.Result = contract.ResultAccepted },
		"no result":            func(e *fencing.Evidence) { e.Result = "" },
		"of another execution": func(e *fencing.Evidence) { e.ExecutionID = "execution-2" },
		"by nobody":            func(e *fencing.Evidence) { e.By = "" },
	} {
		e := ended
		spoil(&e)
		k.leavesNothing(releasing(r.Lease, e), "a reservation whose execution is UNKNOWN is not released on evidence that is "+name, codes...)
	}
	for name, spoil := range map[string]func(l *fencing.Lease){
		"another reservation": func(l *fencing.Lease) { l.ReservationID = "reservation-9" },
		"a lower token":       func(l *fencing.Lease) { l.Token-- },
		"a higher token":      func(l *fencing.Lease) { l.Token++ },
		"no token":            func(l *fencing.Lease) { l.Token = 0 },
	} {
		l := r.Lease
		spoil(&l)
		k.leavesNothing(releasing(l, ended), "a lease with "+name+" releases nothing", codes...)
	}
	k.ends(c, r.Lease, &ended)
	second := k.reserve(c, "reservation-2")
	k.leavesNothing(releasing(r.Lease, ended), "a stale holder releases no successor", codes...)
	ending := func(tx TTx) error { return k.Permits.Fence(k.ctx, tx, c, resource, r.Lease) }
	k.leavesNothing(ending, "a stale holder fences no successor", codes...)
	k.issues(c, second, "execution-2")
	k.checkHistory()
}

func permitFenced[TTx any](k *kit[TTx]) {
	old, _ := k.opened()
	r := k.reserve(old, "reservation-1")
	p := k.issues(old, r, "execution-1")
	c := k.activate(fencing.Office{Epoch: old.Epoch}, "boot-2")
	for name, act := range map[string]func(tx TTx) error{
		"issues":   k.issuing(old, asks(r, "execution-2")),
		"consumes": k.consuming(old, p, now),
		"fences":   func(tx TTx) error { return k.Permits.Fence(k.ctx, tx, old, resource, r.Lease) },
		"releases": func(tx TTx) error { return k.Permits.Release(k.ctx, tx, old, resource, r.Lease, fencing.Evidence{}) },
		"reserves": func(tx TTx) error {
			_, err := k.Permits.Reserve(k.ctx, tx, old, "line-2", "reservation-2")
			return err
		},
	} {
		k.leavesNothing(act, "a fenced caller "+name+" nothing", fenced...)
	}
	k.leavesNothing(k.consuming(c, p, now), "a permit of an earlier session is not consumed in a later one", fenced...)
}

// permitIssueRace asks for permits of one reservation at once, while it is fenced.
func permitIssueRace[TTx any](k *kit[TTx]) {
	c, _ := k.opened()
	for round := range 3 {
		r := k.reserve(c, fmt.Sprint("reservation-", round))
		acts := times(crowd/2, func(i int) error {
			_, err := k.issue(c, asks(r, fmt.Sprint("execution-", round, "-", i)))
			return err
		})
		fence := func() error {
			return k.do(func(tx TTx) error {
				if err := k.Permits.Fence(k.ctx, tx, c, resource, r.Lease); err != nil {
					return err
				}
				return k.Append(k.ctx, tx, "end issue-"+r.ReservationID)
			})
		}
		errs := together(append(acts, fence)...)
		k.ok(errs[len(errs)-1], "to fence a reservation while permits are asked for")
		issued, evidence := 0, fencing.Evidence{}
		for i, err := range errs[:len(errs)-1] {
			if err == nil {
				issued++
				evidence = fencing.Evidence{
					ExecutionID: fmt.Sprint("execution-", round, "-", i), Result: contract.ResultNotApplied, By: "reconciler", Detail: "not there",
				}
				continue
			}
			k.refused(err, "a permit that is asked for is issued or refused", append(refusals, contract.AlreadyExists)...)
		}
		k.rule(issued <= 1, "a reservation has one permit", issued)
		k.checkHistory()
		k.ends(c, r.Lease, &evidence)
	}
}
