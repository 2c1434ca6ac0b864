package fencetest

import (
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

const execution = "execution-1"

// task is an agent with a current session, and a task that has just begun, whose revision is told by a refusal.
func (k *kit[TTx]) task() (c fencing.Caller, revision int64) {
	k.Helper()
	_, c = k.active()
	k.ok(k.do(func(tx TTx) error { return k.Tasks.Start(k.ctx, tx, c, execution, "authorization-0") }), "to start a task")
	revision = k.refused(k.do(k.controlling(c, fencing.Control{Action: fencing.ActionPause, ExpectedRevision: 1 << 40})),
		"a revision that does not stand is refused", contract.Aborted)
	k.rule(revision >= 1, "the refusal names the revision of a task that was started", revision)
	return c, revision
}

// controlling is a control that is not written into the log.
func (k *kit[TTx]) controlling(c fencing.Caller, r fencing.Control) func(tx TTx) error {
	return func(tx TTx) error {
		_, err := k.Tasks.Control(k.ctx, tx, c, execution, r)
		return err
	}
}

// control controls the task, and writes that into the log.
func (k *kit[TTx]) control(c fencing.Caller, r fencing.Control) (receipt contract.Receipt, err error) {
	err = k.do(func(tx TTx) (err error) {
		if receipt, err = k.Tasks.Control(k.ctx, tx, c, execution, r); err != nil {
			return err
		}
		if err = k.Append(k.ctx, tx, countLine("task", receipt)); err == nil && r.Action == fencing.ActionStop {
			err = k.Append(k.ctx, tx, "end task")
		}
		return err
	})
	return receipt, err
}

func (k *kit[TTx]) controls(c fencing.Caller, action fencing.Action, revision int64, authorization string) int64 {
	k.Helper()
	r, err := k.control(c, fencing.Control{Action: action, ExpectedRevision: revision, Authorization: authorization})
	k.ok(err, fmt.Sprint(action, " of a task that expects the revision that stands"))
	k.rule(r.Applied() && r.Before == revision && r.After == revision+1, "a control is APPLIED and moves the revision by one", r)
	return r.After
}

func taskCounts[TTx any](k *kit[TTx]) {
	c, revision := k.task()
	for i := range 3 {
		revision = k.controls(c, fencing.ActionPause, revision, "")
		revision = k.controls(c, fencing.ActionResume, revision, fmt.Sprint("authorization-", i+1))
	}
	k.controls(c, fencing.ActionStop, revision, "")
	k.checkHistory()
}

func taskStale[TTx any](k *kit[TTx]) {
	c, first := k.task()
	revision := k.controls(c, fencing.ActionPause, first, "")
	for _, action := range []fencing.Action{fencing.ActionPause, fencing.ActionResume, fencing.ActionStop} {
		for _, stale := range []int64{first, revision + 1, 1 << 40} {
			r := fencing.Control{Action: action, ExpectedRevision: stale, Authorization: "authorization-9"}
			current := k.leavesNothing(k.controlling(c, r), "an expected revision that does not stand is refused", contract.Aborted)
			k.rule(current == revision, "the refusal names the current revision", current, revision)
		}
		for _, missing := range []int64{0, -1} {
			r := fencing.Control{Action: action, ExpectedRevision: missing, Authorization: "authorization-9"}
			k.leavesNothing(k.controlling(c, r), "an expected revision that is missing is an error, never \"any\"", contract.InvalidArgument)
		}
	}
	k.controls(c, fencing.ActionStop, revision, "")
}

// taskStops tries everything on what was stopped, from every revision.
func taskStops[TTx any](k *kit[TTx]) {
	c, first := k.task()
	paused := k.controls(c, fencing.ActionPause, first, "")
	stopped := k.controls(c, fencing.ActionStop, paused, "")
	tries := func() {
		for _, action := range []fencing.Action{fencing.ActionPause, fencing.ActionResume, fencing.ActionStop} {
			for i, revision := range []int64{first, paused, stopped, stopped + 1} {
				r := fencing.Control{Action: action, ExpectedRevision: revision, Authorization: fmt.Sprint("authorization-", action, i)}
				k.leavesNothing(k.controlling(c, r), "STOP is for ever",
					contract.FailedPrecondition, contract.AlreadyExists, contract.Aborted)
			}
		}
		starting := func(tx TTx) error { return k.Tasks.Start(k.ctx, tx, c, execution, "authorization-0") }
		k.ok(k.do(starting), "to start a task again, which changes nothing,")
	}
	tries()
	k.restart()
	tries()
	k.checkHistory()
}

func taskResumes[TTx any](k *kit[TTx]) {
	c, revision := k.task()
	revision = k.controls(c, fencing.ActionPause, revision, "authorization-1")
	for _, used := range []string{"", "authorization-0", "authorization-1"} {
		r := fencing.Control{Action: fencing.ActionResume, ExpectedRevision: revision, Authorization: used}
		k.leavesNothing(k.controlling(c, r), "a task is resumed by a new authorization alone", contract.PermissionDenied)
	}
	revision = k.controls(c, fencing.ActionResume, revision, "authorization-2")
	revision = k.controls(c, fencing.ActionPause, revision, "")
	r := fencing.Control{Action: fencing.ActionResume, ExpectedRevision: revision, Authorization: "authorization-2"}
	k.leavesNothing(k.controlling(c, r), "an authorization resumes once", contract.PermissionDenied)
}

func taskFenced[TTx any](k *kit[TTx]) {
	old, revision := k.task()
	c := k.activate(fencing.Office{Epoch: old.Epoch}, "boot-2")
	for _, action := range []fencing.Action{fencing.ActionPause, fencing.ActionResume, fencing.ActionStop} {
		r := fencing.Control{Action: action, ExpectedRevision: revision, Authorization: "authorization-9"}
		k.leavesNothing(k.controlling(old, r), "a fenced caller controls no task", fenced...)
	}
	k.leavesNothing(func(tx TTx) error { return k.Tasks.Start(k.ctx, tx, old, "execution-2", "authorization-9") },
		"a fenced caller starts no task", fenced...)
	k.controls(c, fencing.ActionPause, revision, "")
}

// taskRace controls one task from one revision many times at once, and stops it on the way.
func taskRace[TTx any](k *kit[TTx]) {
	c, revision := k.task()
	for round := range 3 {
		won, next := 0, revision+1
		for _, err := range together(times(crowd, func(i int) error {
			r := fencing.Control{Action: fencing.ActionPause, ExpectedRevision: revision}
			if round == 2 && i%2 == 0 {
				r.Action = fencing.ActionStop
			}
			_, err := k.control(c, r)
			return err
		})...) {
			if err == nil {
				won++
				continue
			}
			k.refusedAt(next, err, "of many controls from one revision one is made",
				contract.Aborted, contract.FailedPrecondition, contract.AlreadyExists)
		}
		k.rule(won == 1, "of many controls from one revision one is made", won)
		revision = next
	}
	k.checkHistory()
}
