package fencetest

import (
	"errors"
	"fmt"
	"math"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

// show shows a token and writes that into the log.
func (k *kit[TTx]) show(c fencing.Caller, resource string, token int64, holder string) error {
	return k.do(func(tx TTx) error {
		if err := k.Tokens.Show(k.ctx, tx, c, resource, token, holder); err != nil {
			return err
		}
		return k.Append(k.ctx, tx, tokenLine(resource, token, holder))
	})
}

func (k *kit[TTx]) shows(c fencing.Caller, token int64, holder string) {
	k.Helper()
	k.ok(k.show(c, resource, token, holder), fmt.Sprint("to show token ", token, " of ", holder))
}

func (k *kit[TTx]) stale(c fencing.Caller, token int64, holder string, current int64, rule string) {
	k.Helper()
	told := k.leavesNothing(func(tx TTx) error { return k.Tokens.Show(k.ctx, tx, c, resource, token, holder) }, rule, contract.Aborted)
	k.rule(told == current, rule+"; the refusal names the highest token that was seen", told, current)
}

func tokenStale[TTx any](k *kit[TTx]) {
	_, c := k.active()
	k.shows(c, 5, "permit-5")
	k.shows(c, 5, "permit-5")
	k.stale(c, 4, "permit-4", 5, "a token below the highest that was seen is stale")
	k.stale(c, 5, "permit-6", 5, "a token that was seen is of one holder")
	k.shows(c, 9, "permit-9")
	k.stale(c, 5, "permit-5", 9, "a holder that was accepted is stale once a higher token was seen")
	k.shows(c, math.MaxInt64, "the last")
	k.stale(c, 10, "permit-10", math.MaxInt64, "the largest number is a token like others")
	for _, bad := range []int64{0, -1, math.MinInt64} {
		k.leavesNothing(func(tx TTx) error { return k.Tokens.Show(k.ctx, tx, c, resource, bad, "x") },
			"a token that is missing is an error, never \"any\"", contract.InvalidArgument)
	}
	k.ok(k.show(c, "line-2", 1, "permit-1"), "to show a first token to another resource")
	k.checkHistory()
}

// tokenRolledBack forgets what was not committed, and nothing else.
func tokenRolledBack[TTx any](k *kit[TTx]) {
	_, c := k.active()
	k.shows(c, 3, "permit-3")
	undone := errors.New("undone")
	err := k.do(func(tx TTx) error { return errors.Join(k.Tokens.Show(k.ctx, tx, c, resource, 7, "permit-7"), undone) })
	k.rule(errors.Is(err, undone), "a token can be shown", err)
	k.shows(c, 5, "permit-5")
	k.stale(c, 3, "permit-3", 5, "what was committed is remembered")
}

func tokenFenced[TTx any](k *kit[TTx]) {
	o, old := k.active()
	c := k.activate(o, "boot-2")
	k.leavesNothing(func(tx TTx) error { return k.Tokens.Show(k.ctx, tx, old, resource, 100, "permit-100") },
		"a fenced caller shows no token", fenced...)
	k.shows(c, 1, "permit-1")
}

// tokenRace shows many tokens at once, each twice, and again higher ones.
func tokenRace[TTx any](k *kit[TTx]) {
	_, c := k.active()
	const rounds = 3
	for round := range rounds {
		for _, err := range together(times(2*crowd, func(i int) error {
			token := int64(crowd*round + i/2 + 1)
			return k.show(c, resource, token, fmt.Sprint("permit-", token))
		})...) {
			if err != nil {
				k.refused(err, "a token that is shown is accepted or stale", contract.Aborted)
			}
		}
	}
	k.checkHistory()
	k.stale(c, rounds*crowd-1, "late", rounds*crowd, "after many tokens at once the highest one stands")
}
