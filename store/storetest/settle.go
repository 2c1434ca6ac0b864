package storetest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/store"
)

// unsettled claims the kit's key and completes it with an ambiguous outcome.
func (k *kit[TTx]) unsettled() store.Fenced {
	k.Helper()
	f := k.claimed()
	p := store.CompleteParams{Fenced: f, Outcomes: []byte("ambiguous"), Unsettled: true}
	k.ok(k.own.Complete(k.ctx, p), "completion under the fence")
	return f
}

// settles settles the kit's key under f, which must succeed, and returns the fence.
func (k *kit[TTx]) settles(f store.Fenced, outcomes []byte, unsettled bool) store.Fenced {
	k.Helper()
	p := store.CompleteParams{Fenced: f, Outcomes: outcomes, Unsettled: unsettled}
	k.ok(k.keep().Settle(k.ctx, p), "Settle of an unsettled claim under its fence")
	s := k.lookup()
	k.rule(s.Claim.Completed && s.Claim.Unsettled == unsettled && bytes.Equal(s.Claim.Outcomes, outcomes),
		"Settle replaces the outcomes, byte for byte", s)
	k.rule(s.Claim.Fence > f.Fence && s.Claim.Attempt == f.Attempt && s.Claim.Digest == digestOf("a"),
		"Settle raises the fence, and changes neither attempt nor digest", s)
	f.Fence = s.Claim.Fence
	return f
}

// notSettled fails the test unless Settle under f is ErrFenced and changes nothing.
func (k *kit[TTx]) notSettled(f store.Fenced, rule string) {
	k.Helper()
	before := k.lookup()
	for _, unsettled := range []bool{false, true} {
		p := store.CompleteParams{Fenced: f, Outcomes: []byte("late"), Unsettled: unsettled}
		k.refused(k.keep().Settle(k.ctx, p), store.ErrFenced, rule+" is ErrFenced")
		k.unchanged(before, rule+" changes nothing")
	}
}

func settleOnce[TTx any](k *kit[TTx]) {
	for _, outcomes := range [][]byte{everyByte(1 << 16), {}} {
		k.id = newID()
		f := k.unsettled()
		s := k.lookup()
		k.rule(s.Claim.Completed && s.Claim.Unsettled, "a claim that was completed unsettled is told so", s)
		raised := k.settles(f, outcomes, false)
		k.notSettled(f, "a second Settle under the old fence")
		k.notSettled(raised, "Settle of a claim that is settled")
	}
}

func settleAgain[TTx any](k *kit[TTx]) {
	first := k.unsettled()
	second := k.settles(first, []byte("still ambiguous"), true)
	k.notSettled(first, "Settle under a fence that another Settle raised")
	third := k.settles(second, []byte("found"), false)
	k.notSettled(third, "Settle of a claim that is settled")
}

func settleSettled[TTx any](k *kit[TTx]) {
	f := k.started()
	k.notSettled(f, "Settle of a claim that is not completed")
	k.complete(f, []byte("done"))
	k.rule(!k.lookup().Claim.Unsettled, "a completion is settled unless it says otherwise", k.lookup())
	k.notSettled(f, "Settle of a claim that was completed as settled")

	k.id = newID()
	k.propose(k.id)
	p := attempt(k.id)
	p.Mode, p.Outcomes = store.ModeCancel, []byte("cancelled")
	f = k.claim(k.own, p)
	k.rule(!k.lookup().Claim.Unsettled, "a claim that is completed as it is made is settled", k.lookup())
	k.notSettled(f, "Settle of a claim that was completed as it was made")
}

func settleFenced[TTx any](k *kit[TTx]) {
	f := k.unsettled()
	for name, other := range fences(f) {
		k.notSettled(other, "Settle under "+name)
	}
	foreign := f
	foreign.ID = k.foreign()
	k.notSettled(foreign, "Settle under another tenant's name")
	k.settles(f, []byte("found"), false)
}

func settleConcurrently[TTx any](k *kit[TTx]) {
	f := k.unsettled()
	answers := race(10, func(i int) (store.Standing, error) {
		p := store.CompleteParams{Fenced: f, Outcomes: []byte(fmt.Sprint(i)), Unsettled: i%2 == 0}
		return store.Standing{}, k.keep().Settle(k.ctx, p)
	})
	var winners []string
	for i, a := range answers {
		if a.err == nil {
			winners = append(winners, fmt.Sprint(i))
		} else {
			k.rule(errors.Is(a.err, store.ErrFenced), "concurrent settlements that lose are ErrFenced", a.err)
		}
	}
	s := k.lookup()
	k.rule(len(winners) == 1, "one of many concurrent settlements is stored", winners)
	k.rule(string(s.Claim.Outcomes) == winners[0], "the settlement that won is the one that stands", s)
}

func unsettledIsCompleted[TTx any](k *kit[TTx]) {
	f := k.unsettled()
	k.fencedOut(f, "the attempt that completed the claim unsettled")
	p := attempt(k.id)
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a claim that loses")
	k.rule(!won(s, p) && s.Claim.Completed && s.Claim.Unsettled && string(s.Claim.Outcomes) == "ambiguous",
		"a claim of an unsettled key sees its outcomes", s)
	k.rule(len(s.Claim.Items) == 0, "an unsettled claim tells no items: its outcomes say it all", s)
	f = k.settles(f, []byte("found"), false)
	k.fencedOut(f, "the attempt whose claim was settled")
}
