package storetest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/store"
)

func (k *kit[TTx]) complete(f store.Fenced, outcomes []byte) {
	k.Helper()
	k.ok(k.own.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: outcomes}), "completion under the fence")
}

func completeBytes[TTx any](k *kit[TTx]) {
	for _, outcomes := range [][]byte{everyByte(1 << 20), []byte(`{"b": 1, "a": [1.0, "\u0000"]}`), {}} {
		k.id = newID()
		k.complete(k.claimed(), outcomes)
		s := k.lookup()
		k.rule(s.Claim.Completed, "a completed claim is told as completed", s)
		k.rule(bytes.Equal(s.Claim.Outcomes, outcomes), "stored outcomes come back byte for byte", s)
	}
}

func completeOnce[TTx any](k *kit[TTx]) {
	f := k.claimed()
	k.complete(f, []byte("first"))
	before := k.lookup()
	for _, again := range []string{"second", "first"} {
		err := k.own.Complete(k.ctx, store.CompleteParams{Fenced: f, Outcomes: []byte(again)})
		k.refused(err, store.ErrFenced, "a second completion is ErrFenced")
		k.unchanged(before, "a second completion changes nothing")
	}
	s, err := k.own.Claim(k.ctx, attempt(k.id))
	k.ok(err, "a claim that loses")
	k.rule(s.Claim.Attempt == f.Attempt && s.Claim.Completed && string(s.Claim.Outcomes) == "first",
		"a claim of a completed key sees its outcomes", s)
	k.unchanged(before, "a claim of a completed key changes nothing")
}

func completeFenced[TTx any](k *kit[TTx]) {
	f := k.started()
	before := k.lookup()
	for name, other := range fences(f) {
		err := k.own.Complete(k.ctx, store.CompleteParams{Fenced: other, Outcomes: []byte("late")})
		k.refused(err, store.ErrFenced, "completion under "+name+" is ErrFenced")
		k.unchanged(before, "completion under "+name+" changes nothing")
	}
	k.complete(f, []byte("done"))
}

func completeConcurrently[TTx any](k *kit[TTx]) {
	f := k.claimed()
	answers := race(10, func(i int) (store.Standing, error) {
		p := store.CompleteParams{Fenced: f, Outcomes: []byte(fmt.Sprint(i))}
		return store.Standing{}, k.own.Complete(k.ctx, p)
	})
	var winners []string
	for i, a := range answers {
		if a.err == nil {
			winners = append(winners, fmt.Sprint(i))
		} else {
			k.rule(errors.Is(a.err, store.ErrFenced), "concurrent completions that lose are ErrFenced", a.err)
		}
	}
	s := k.lookup()
	k.rule(len(winners) == 1, "one of many concurrent completions is stored", winners)
	k.rule(string(s.Claim.Outcomes) == winners[0], "the completion that won is the one that stands", s)
}

func completeKeepsDigest[TTx any](k *kit[TTx]) {
	k.complete(k.claimed(), []byte("done"))
	s := k.lookup()
	k.rule(s.Claim.Digest == digestOf("a") && s.Proposal != nil && s.Proposal.Digest == digestOf("a"),
		"the digests outlive the completion", s)
	p := attempt(k.id)
	p.Digest, p.AcceptUnminted = digestOf("b"), true
	s, err := k.own.Claim(k.ctx, p)
	k.ok(err, "a claim that loses")
	k.rule(!won(s, p) && s.Claim.Digest == digestOf("a"),
		"a claim with other content sees the digest of the completed claim", s)
}

func itemsUntilCompleted[TTx any](k *kit[TTx]) {
	f := k.started()
	k.progress(store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("x"), Next: "i2"})
	k.rule(items(k.lookup()) == `i1="x" i2 started`,
		"an uncompleted claim tells its items: nil for one without an outcome", k.lookup())
	k.complete(f, []byte("done"))
	k.rule(len(k.lookup().Claim.Items) == 0, "a completed claim tells no items: its outcomes say it all", k.lookup())
}
