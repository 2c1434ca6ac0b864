package fencetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

const (
	// patience is how long a call is watched that must wait. Nothing is decided by it: a call that would have come later than this
	// is found by the log.
	patience = 150 * time.Millisecond
	crowd    = 8 // how many do the same at once
)

// kit is one subtest: its harness, and the checks.
type kit[TTx any] struct {
	*testing.T
	Harness[TTx]
	ctx context.Context // the subtest's
}

func newKit[TTx any](t *testing.T, h Harness[TTx]) *kit[TTx] {
	t.Helper()
	return &kit[TTx]{T: t, Harness: h, ctx: t.Context()}
}

// rule fails the test unless holds, and says which rule is broken.
func (k *kit[TTx]) rule(holds bool, rule string, got ...any) {
	k.Helper()
	if holds {
		return
	}
	var b strings.Builder
	for _, g := range got {
		fmt.Fprintf(&b, "\n  got: %+v", g)
	}
	k.Fatal("broken rule: " + rule + b.String())
}

// ok fails the test if err is not nil.
func (k *kit[TTx]) ok(err error, doing string) {
	k.Helper()
	k.rule(err == nil, doing+" must succeed", err, cause(err))
}

func cause(err error) error {
	if se, ok := errors.AsType[*store.Error](err); ok {
		return se.Cause
	}
	return nil
}

// refused fails the test unless err is a refusal with one of these codes, which says that nothing was done. It returns the number
// that the refusal tells.
func (k *kit[TTx]) refused(err error, rule string, codes ...contract.FailureCode) (current int64) {
	k.Helper()
	k.rule(err != nil, rule, "no error")
	f, ok := contract.FailureOf(err)
	k.rule(ok, rule+"; a refusal is a contract.Failure", err, cause(err))
	k.rule(slices.Contains(codes, f.Code), fmt.Sprint(rule, "; with one of ", codes), err)
	k.rule(f.KnownNoEffect(), rule+"; a refusal says that nothing was done", err)
	return f.Current
}

// refusedAt is refused, and the refusal tells the number that stands.
func (k *kit[TTx]) refusedAt(current int64, err error, rule string, codes ...contract.FailureCode) {
	k.Helper()
	told := k.refused(err, rule, codes...)
	k.rule(told == current, fmt.Sprint(rule, "; the refusal names the current number ", current), err)
}

// fenced are the codes of a caller that is not the current one (A5).
var fenced = []contract.FailureCode{contract.Aborted, contract.Unauthenticated}

// denied are the codes of a caller that nobody approved.
var denied = []contract.FailureCode{contract.PermissionDenied, contract.Unauthenticated}

// stored is everything that is committed, the log included.
func (k *kit[TTx]) stored() string {
	k.Helper()
	s, err := k.Snapshot(k.ctx)
	k.ok(err, "the harness's Snapshot")
	return s + "\n" + strings.Join(k.lines(), "\n")
}

func (k *kit[TTx]) lines() []string {
	k.Helper()
	lines, err := k.Lines(k.ctx)
	k.ok(err, "the harness's Lines")
	return lines
}

// leavesNothing fails the test unless act is refused with one of these codes and leaves nothing behind, also when its transaction is
// committed.
func (k *kit[TTx]) leavesNothing(act func(tx TTx) error, rule string, codes ...contract.FailureCode) (current int64) {
	k.Helper()
	before := k.stored()
	current = k.refused(k.committed(act), rule, codes...)
	after := k.stored()
	k.rule(before == after, rule+"; a refusal leaves nothing behind", "before:\n"+before, "after:\n"+after)
	return current
}

// restart goes on in a new process.
func (k *kit[TTx]) restart() {
	k.Helper()
	k.Harness = k.Restart(k.T)
}
