package fencetest

import (
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

// started is an agent with a current session and an admission that has just begun, whose generation is told by a refusal.
func (k *kit[TTx]) started() (c fencing.Caller, generation int64) {
	k.Helper()
	_, c = k.active()
	k.ok(k.do(func(tx TTx) error { return k.Admissions.Start(k.ctx, tx, c) }), "to start an admission")
	generation = k.refused(k.open(c), "an admission begins closed", contract.FailedPrecondition)
	k.rule(generation >= 1, "the refusal names the generation of an admission that was started", generation)
	return c, generation
}

// request asks for an opening or a close by a barrier, from a generation.
func (k *kit[TTx]) request(c fencing.Caller, barrierID string, generation int64, open bool) fencing.AdmissionRequest {
	return fencing.AdmissionRequest{BarrierID: barrierID, ExpectedGeneration: generation, Open: open, Epoch: c.Epoch}
}

// set opens or closes, and writes that into the log.
func (k *kit[TTx]) set(c fencing.Caller, r fencing.AdmissionRequest, active int64) (receipt contract.Receipt, err error) {
	err = k.do(func(tx TTx) (err error) {
		if receipt, err = k.Admissions.Set(k.ctx, tx, c, r, active); err != nil {
			return err
		}
		return k.Append(k.ctx, tx, countLine("admission", receipt))
	})
	return receipt, err
}

func countLine(name string, r contract.Receipt) string {
	return fmt.Sprintf("count %s %d %d", name, r.Before, r.After)
}

// opens opens the admission from a generation, and returns the next one.
func (k *kit[TTx]) opens(c fencing.Caller, barrierID string, generation int64) int64 {
	k.Helper()
	r, err := k.set(c, k.request(c, barrierID, generation, true), 0)
	k.ok(err, "an opening that expects the generation that stands")
	k.rule(r.Result == contract.ResultApplied && r.Before == generation && r.After == generation+1,
		"an opening is APPLIED and moves the generation by one", r)
	return r.After
}

// closes closes the admission from a generation, with calls active, and returns the next generation.
func (k *kit[TTx]) closes(c fencing.Caller, barrierID string, generation, active int64) int64 {
	k.Helper()
	r, err := k.set(c, k.request(c, barrierID, generation, false), active)
	k.ok(err, "a close that expects the generation that stands")
	k.rule(r.Before == generation && r.After == generation+1, "a close moves the generation by one, at once", r)
	k.barrier(r, barrierID, active)
	return r.After
}

// barrier fails the test unless r is the evidence of a barrier behind which calls are active.
func (k *kit[TTx]) barrier(r contract.Receipt, barrierID string, active int64) {
	k.Helper()
	if active != 0 {
		k.rule(r.Result == contract.ResultAccepted, "a close with active calls is ACCEPTED, and not APPLIED", r)
		return
	}
	k.rule(r.Applied(), "a close without active calls is APPLIED, with evidence that can stand", r)
	k.rule(r.Barrier != nil && r.Barrier.ID == barrierID && r.Barrier.ActiveCalls == 0,
		"a close that is APPLIED names its barrier, and that nothing is active", r)
}

func (k *kit[TTx]) open(c fencing.Caller) error {
	return k.do(func(tx TTx) error { return k.Admissions.HoldOpen(k.ctx, tx, c) })
}

func (k *kit[TTx]) closed(c fencing.Caller, rule string) {
	k.Helper()
	k.leavesNothing(func(tx TTx) error { return k.Admissions.HoldOpen(k.ctx, tx, c) }, rule, contract.FailedPrecondition)
}

func admissionCounts[TTx any](k *kit[TTx]) {
	c, generation := k.started()
	for i := range 3 {
		generation = k.opens(c, fmt.Sprint("open-", i), generation)
		k.ok(k.open(c), "new work while admission is open")
		generation = k.closes(c, fmt.Sprint("close-", i), generation, 0)
		k.closed(c, "new work is refused while admission is closed")
	}
	k.checkHistory()
}

// admissionStale asks with numbers that do not stand.
func admissionStale[TTx any](k *kit[TTx]) {
	c, first := k.started()
	generation := k.opens(c, "open-1", first)
	for _, stale := range []int64{first, generation + 1, 1 << 40} {
		for _, open := range []bool{true, false} {
			current := k.leavesNothing(k.setting(c, k.request(c, "another", stale, open)),
				"an expected generation that does not stand is refused", contract.Aborted)
			k.rule(current == generation, "the refusal names the current generation", current, generation)
		}
	}
	for _, missing := range []int64{0, -1} {
		k.leavesNothing(k.setting(c, k.request(c, "another", missing, false)),
			"an expected generation that is missing is an error, never \"any\"", contract.InvalidArgument)
	}
	k.ok(k.open(c), "new work, after changes were refused")
}

// setting is a change that is not written into the log.
func (k *kit[TTx]) setting(c fencing.Caller, r fencing.AdmissionRequest) func(tx TTx) error {
	return func(tx TTx) error {
		_, err := k.Admissions.Set(k.ctx, tx, c, r, 0)
		return err
	}
}

// admissionOnce delivers a barrier again: it is refused, or answered as at first, and moves nothing.
func admissionOnce[TTx any](k *kit[TTx]) {
	c, first := k.started()
	generation := k.opens(c, "barrier-1", first)
	for _, r := range []fencing.AdmissionRequest{
		k.request(c, "barrier-1", first, true),      // delivered again
		k.request(c, "barrier-1", generation, true), // with what stands now
		k.request(c, "barrier-1", generation, false),
	} {
		before := k.stored()
		var receipt contract.Receipt
		err := k.committed(func(tx TTx) (err error) {
			receipt, err = k.Admissions.Set(k.ctx, tx, c, r, 0)
			return err
		})
		replayed := err == nil && receipt.Before == first && receipt.After == generation
		if !replayed {
			k.refused(err, "a barrier that moved the generation moves it no more", contract.Aborted)
		}
		k.rule(before == k.stored(), "a barrier moves the generation once, however often it is delivered", r, k.stored())
	}
	k.closes(c, "barrier-2", generation, 0)
	k.checkHistory()
}

// admissionDrains reaches a barrier with active calls.
func admissionDrains[TTx any](k *kit[TTx]) {
	c, generation := k.started()
	generation = k.opens(c, "open-1", generation)
	k.closes(c, "close-1", generation, 2)
	k.closed(c, "new work is refused as soon as a close was accepted")
	reached := func(barrierID string) func(tx TTx) error {
		return func(tx TTx) error { return k.Admissions.HoldDrained(k.ctx, tx, c, barrierID) }
	}
	k.leavesNothing(reached("close-1"), "a barrier is not reached while calls are active", contract.FailedPrecondition)
	for _, active := range []int64{2, 1} {
		k.leavesNothing(k.draining(c, "close-1", active), "a barrier is not reached while calls are active", contract.FailedPrecondition)
	}
	k.leavesNothing(k.draining(c, "close-2", 0), "another barrier than the last one is not reached", refusals...)
	k.leavesNothing(k.draining(c, "close-1", -1), "a number of calls below nothing is an error", contract.InvalidArgument)
	k.leavesNothing(reached("close-1"), "a barrier is not reached before it is drained", contract.FailedPrecondition)
	receipts := make([]contract.Receipt, 2)
	for i := range receipts {
		r := &receipts[i]
		k.ok(k.do(func(tx TTx) (err error) {
			*r, err = k.Admissions.Drain(k.ctx, tx, c, "close-1", 0)
			return err
		}), "to drain the last barrier")
		k.barrier(*r, "close-1", 0)
	}
	k.rule(receipts[0].After == receipts[1].After, "the evidence of a barrier is the same when it is told again", receipts)
	k.ok(k.do(reached("close-1")), "what depends on a barrier that is reached")
	k.leavesNothing(reached("open-1"), "an opening is not a barrier that is reached", contract.FailedPrecondition)
}

func (k *kit[TTx]) draining(c fencing.Caller, barrierID string, active int64) func(tx TTx) error {
	return func(tx TTx) error {
		_, err := k.Admissions.Drain(k.ctx, tx, c, barrierID, active)
		return err
	}
}

// stop stops admission, and writes into the log that nothing follows.
func (k *kit[TTx]) stop(c fencing.Caller, barrierID string, active int64) contract.Receipt {
	k.Helper()
	var r contract.Receipt
	k.ok(k.do(func(tx TTx) (err error) {
		r, err = k.Admissions.Stop(k.ctx, tx, c, barrierID, active)
		if err == nil {
			err = k.Append(k.ctx, tx, "end opened")
		}
		return err
	}), "to stop admission")
	return r
}

func admissionStops[TTx any](k *kit[TTx]) {
	c, generation := k.started()
	generation = k.opens(c, "open-1", generation)
	r := k.stop(c, "stop-1", 2)
	k.rule(r.Result == contract.ResultAccepted, "a stop with active calls is ACCEPTED, and not APPLIED", r)
	k.rule(r.After > generation, "a stop moves the generation, so that an opening on its way is stale", r)
	k.stopped(c, generation, r.After)
	again := k.stop(c, "stop-1", 0)
	k.barrier(again, "stop-1", 0)
	k.rule(again.After >= r.After, "a stop that is delivered again tells no lower generation", r, again)
	k.stopped(c, generation, again.After)
	k.restart()
	k.stopped(c, generation, again.After)

	// A close after the stop, refused or not, takes nothing back.
	closed, err := k.set(c, k.request(c, "close-2", again.After, false), 0)
	k.stopped(c, again.After, max(again.After, closed.After))
	k.rule(err != nil || closed.After >= again.After, "a close after a stop tells no lower generation", closed)
}

// admissionStopsClosed stops what is closed, because it was only started or closed before: also for ever.
func admissionStopsClosed[TTx any](k *kit[TTx]) {
	c, generation := k.started()
	r := k.stop(c, "stop-1", 0)
	k.rule(r.Applied(), "a stop of a closed admission without active calls is APPLIED", r)
	k.stopped(c, generation, r.After)
	k.restart()
	k.stopped(c, generation, r.After)
}

// stopped fails the test unless nothing opens the admission again.
func (k *kit[TTx]) stopped(c fencing.Caller, before, now int64) {
	k.Helper()
	k.closed(c, "no new work is taken after a stop")
	for _, generation := range []int64{before, now, now + 1} {
		k.leavesNothing(k.setting(c, k.request(c, fmt.Sprint("open-", generation), generation, true)),
			"nothing opens what was stopped", contract.FailedPrecondition, contract.Aborted)
	}
	k.closed(c, "nor after somebody tried to open it")
}

// admissionFenced asks as a caller that is not the current one.
func admissionFenced[TTx any](k *kit[TTx]) {
	old, generation := k.started()
	c := k.activate(fencing.Office{Epoch: old.Epoch}, "boot-2")
	for name, act := range map[string]func(tx TTx) error{
		"starts":        func(tx TTx) error { return k.Admissions.Start(k.ctx, tx, old) },
		"sets":          k.setting(old, k.request(old, "barrier-1", generation, true)),
		"drains":        k.draining(old, "barrier-1", 0),
		"holds":         func(tx TTx) error { return k.Admissions.HoldOpen(k.ctx, tx, old) },
		"holds drained": func(tx TTx) error { return k.Admissions.HoldDrained(k.ctx, tx, old, "barrier-1") },
		"stops": func(tx TTx) error {
			_, err := k.Admissions.Stop(k.ctx, tx, old, "stop-1", 0)
			return err
		},
	} {
		k.leavesNothing(act, "a fenced caller "+name+" no admission", fenced...)
	}
	k.opens(c, "barrier-1", generation)
}

// admissionRace asks for many changes from one generation at once.
func admissionRace[TTx any](k *kit[TTx]) {
	c, generation := k.started()
	won := 0
	for _, err := range together(times(crowd, func(i int) error {
		_, err := k.set(c, k.request(c, fmt.Sprint("barrier-", i), generation, i%2 == 0), 0)
		return err
	})...) {
		if err == nil {
			won++
			continue
		}
		k.refusedAt(generation+1, err, "of many changes from one generation one is made", contract.Aborted)
	}
	k.rule(won == 1, "of many changes from one generation one is made", won)
	k.checkHistory()
}

// eachClose runs a case of a writer that needs an open admission, and of what closes that.
func eachClose[TTx any](test func(k *kit[TTx], g guarded[TTx])) func(k *kit[TTx]) {
	return func(k *kit[TTx]) {
		c, generation := k.started()
		generation = k.opens(c, "open-1", generation)
		check := func(tx TTx) error { return k.Admissions.HoldOpen(k.ctx, tx, c) }
		write := func(tx TTx) error { return k.Append(k.ctx, tx, "once opened work") }
		test(k, guarded[TTx]{"admission closes", c, check, write, func(tx TTx) error {
			if err := k.setting(c, k.request(c, "close-1", generation, false))(tx); err != nil {
				return err
			}
			return k.Append(k.ctx, tx, "end opened")
		}})
		k.checkHistory()
	}
}
