package main

// property is one promise of the protocol. The invariants that each stands for are those of the library's fault model.
type property string

// The properties, each checked on every step of every interleaving.
const (
	p1 property = "P1" // at most one effect per key and item (I1, I9)
	p2 property = "P2" // no claim, and with a compare-and-set no effect, on a surface that is known to have moved (I5)
	p3 property = "P3" // what is recorded of an item is true: no effect after a final "not applied" (I7, I11)
	p4 property = "P4" // terminal states stay, but for ambiguous items; there is no way back to absent (I6, I7, I18)
	p5 property = "P5" // who was told stale, expired or not started was told the truth, and it stays true (I4, I15)
	p6 property = "P6" // an unknown commit is never answered by a guess (I2, I11)
	p7 property = "P7" // what was acknowledged is never lost or contradicted (I6, I7, I12)
	p8 property = "P8" // no dead end: without further faults every state can be settled and every call answered (I14, I19)
)

// broken lists the properties that the step from one state to the next breaks. Both have their processes in the same
// order.
func broken(v *variant, from, to *state) []property {
	var all []property
	for _, c := range []struct {
		p     property
		holds bool
	}{
		{p1, onceEach(to)},
		{p2, onlyFresh(v, from, to)},
		{p3, noLie(v, to) && nothingDropped(v, from, to)},
		{p4, staysTerminal(v, from, to)},
		{p5, refusalsTrue(v, from, to)},
		{p6, noGuess(v, from, to)},
		{p7, acknowledgedStays(v, from, to)},
	} {
		if !c.holds {
			all = append(all, c.p)
		}
	}
	return all
}

func onceEach(s *state) bool { return s.effects[0] <= 1 && s.effects[1] <= 1 }

// onlyFresh judges whoever has just got the claim, by what it has read; where it has locked the surface, by the
// surface.
func onlyFresh(v *variant, from, to *state) bool {
	for i := range to.confirmers {
		c := &to.confirmers[i]
		if c.owns && !from.confirmers[i].owns && (c.sawMoved || v.is(surfaceLocked) && to.moved) {
			return false
		}
	}
	return !v.is(targetCAS) || !from.moved || !hasNewEffect(from, to)
}

func hasNewEffect(from, to *state) bool {
	return to.effects[0] > from.effects[0] || to.effects[1] > from.effects[1]
}

// noLie compares what is recorded with what the target did.
func noLie(v *variant, s *state) bool {
	for i := range v.items {
		switch s.out[i] {
		case foundAbsent, failed, skipped:
			if s.effects[i] > 0 {
				return false
			}
		case applied:
			if s.effects[i] == 0 {
				return false
			}
		default: // nothing is said
		}
	}
	return true
}

// nothingDropped asks that an attempt which ends knowing of an effect that the verdict denies leaves an alarm.
func nothingDropped(v *variant, from, to *state) bool {
	for i := range to.confirmers {
		if to.confirmers[i].told == nothing || from.confirmers[i].told != nothing {
			continue
		}
		t := turn{v: v, s: &state{out: to.out}, me: &confirmer{res: from.confirmers[i].res}}
		if t.contradicts() && !to.alarm {
			return false
		}
	}
	return true
}

func staysTerminal(v *variant, from, to *state) bool {
	if from.phase == absent {
		return true
	}
	if to.phase == absent {
		return from.phase == tombstone && to.gone && to.expired
	}
	if !from.terminal() {
		return true
	}
	for i := range v.items {
		if from.out[i] != to.out[i] && from.out[i] != ambiguous {
			return false
		}
	}
	return to.phase == from.phase || to.phase == tombstone
}

// refusalsTrue judges a refusal when it is told - no claim, none under way, no effect - and again by whatever comes
// later.
func refusalsTrue(v *variant, from, to *state) bool {
	for i := range to.confirmers {
		said := to.confirmers[i].told
		switch said {
		case saidStale, saidExpired, saidNotStarted:
			if from.confirmers[i].told != said && !from.nothingYet() {
				return false
			}
		case saidNotMinted:
			if from.confirmers[i].told != said && from.phase != absent {
				return false
			}
		default:
			continue
		}
		if to.confirmers[i].owns && said != saidNotStarted { // that one is P6's
			return false
		}
		final := said == saidExpired || said == saidStale && (v.is(surfaceLocked) || v.is(staleFinal))
		if final && hasNewEffect(from, to) {
			return false
		}
	}
	return true
}

func (s *state) nothingYet() bool {
	return s.phase == absent && !s.indexHeld(nil) && s.effects == [maxItems]uint8{}
}

// noGuess asks that an attempt that has lost the reply to its commit goes on, or says something definite, only once
// the transaction has ended, and only with its own claim; and that a "not started" stays true.
func noGuess(v *variant, from, to *state) bool {
	for i := range to.confirmers {
		was, is := &from.confirmers[i], &to.confirmers[i]
		if is.told == saidNotStarted && is.owns {
			return false
		}
		if was.at != atUnknown || is.at == atUnknown {
			continue
		}
		definite := is.told == saidDone || is.told == saidNotStarted || is.told == saidStale || is.told == saidExpired
		goesOn := is.at == atRun || is.at == atRecord
		if (definite || goesOn) && was.net == netSent || goesOn && !was.owns {
			return false
		}
	}
	return true
}

// acknowledgedStays asks that a result that was told is stored, is the stored one, stays, and that nobody is told
// otherwise.
func acknowledgedStays(v *variant, from, to *state) bool {
	acknowledged, denied := false, false
	for i := range to.confirmers {
		was, is := &from.confirmers[i], &to.confirmers[i]
		switch is.told {
		case saidDone:
			acknowledged = true
			if was.told != saidDone && was.owns && !sameResult(v, was, to) {
				return false
			}
		case saidStale, saidExpired, saidNotStarted, saidAmbiguous:
			denied = denied || was.told != is.told
		default:
		}
	}
	if to.canceller.told == saidCancelled {
		stands := to.gone || to.terminal() && to.out[0] == skipped
		if !stands || to.effects != [maxItems]uint8{} {
			return false
		}
	}
	if acknowledged && (denied || !to.terminal() && !to.gone) {
		return false
	}
	return true
}

// sameResult says whether what c has just been told as its own result is what is stored; ambiguous contradicts
// nothing.
func sameResult(v *variant, c *confirmer, s *state) bool {
	for i := range v.items {
		if c.res[i] != none && c.res[i] != ambiguous && c.res[i] != s.out[i] {
			return false
		}
	}
	return true
}

// settled says whether nothing is left to be found out about the key.
func (s *state) settled() bool {
	for c := range s.attempts {
		if c.net != netNone {
			return false
		}
	}
	return s.phase != executing && (!s.terminal() || !s.hasAmbiguous())
}
