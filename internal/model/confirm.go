package main

// entryActions are a confirm's steps until it runs or is told why not.
func entryActions(v *variant) []action {
	all := []action{
		{name: "looks the key up", do: look},
		{name: "reads the surface", do: readSurface},
		{name: "looks behind the barrier and answers", do: lookBehind},
		{name: "has waited too long for another one's transaction", do: lockTimeout},
		{name: "its claim is refused", do: refused},
		{name: "its claim's statement judges the proposal", do: judge},
		{name: "its claim finds another one's", do: conflict},
		{name: "finds out how its transaction ended", do: findOut},
		{name: "cannot find out how its transaction ended", do: cannotFindOut},
		{name: "reads the first one's completion", do: await},
		{name: "has waited long enough for the first one", do: waitedEnough},
	}
	if v.mode == atomic {
		return all
	}
	return append(all, commits(v, "its claim", claims, always(txClaim), goOn, atUnknown)...)
}

// look is the lookup before the surface is read.
func look(t *turn) bool {
	if t.me.at != atLook {
		return false
	}
	if t.s.phase != absent {
		t.answerClaim()
	} else {
		t.me.at = atSurface
	}
	return true
}

// readSurface compares the surface with what was proposed.
func readSurface(t *turn) bool {
	if t.me.at != atSurface {
		return false
	}
	t.me.sawMoved, t.me.at = t.s.moved, atClaim
	switch {
	case t.v.has(expiryOnEntry) && t.s.expired:
		t.me.tell(saidExpired)
	case t.me.sawMoved && t.v.has(staleFirst|noSecondLookup):
		t.me.tell(saidStale)
	case t.me.sawMoved:
		t.me.at = atBehind
	}
	return true
}

// lookBehind answers whoever cannot claim.
func lookBehind(t *turn) bool {
	if t.me.at != atBehind || t.s.indexHeld(t.me) {
		return false
	}
	if !t.answer() { // it was expired, and is unknown by now: nothing is said
		t.me.tell(saidUnavailable)
	}
	return true
}

func lockTimeout(t *turn) bool {
	switch t.me.at {
	case atBehind, atClaim, atInsert:
	default:
		return false
	}
	if !t.s.indexHeld(t.me) {
		return false
	}
	t.inProgress()
	return true
}

// proposalOK is the claim statement's own judgement.
func (t *turn) proposalOK() bool {
	if t.s.gone {
		return t.v.is(unminted)
	}
	return !t.s.expired || t.v.has(expiryOnEntry)
}

// refused is a claim that inserts nothing and so does not wait for anybody.
func refused(t *turn) bool {
	if t.me.at != atClaim || t.proposalOK() && t.s.phase == absent {
		return false
	}
	if t.s.phase == absent && !t.s.gone && !t.v.has(expiredAtOnce) {
		t.me.at = atBehind // expired: it did not wait for one that is under way
		return true
	}
	return t.answer()
}

// judge is the first half of a claim on PostgreSQL, whose second half may wait and does not judge again.
func judge(t *turn) bool {
	if !t.v.is(judgedEarly) || t.me.at != atClaim || !t.proposalOK() || t.s.phase != absent {
		return false
	}
	t.me.at = atInsert
	return true
}

// conflict is the second half when another one came first.
func conflict(t *turn) bool {
	if t.me.at != atInsert || t.s.indexHeld(t.me) || t.s.phase == absent {
		return false
	}
	t.answerClaim()
	return true
}

// claims says whether the claim goes in now.
func claims(t *turn) bool {
	if t.s.phase != absent || t.s.indexHeld(t.me) {
		return false
	}
	if t.v.is(judgedEarly) {
		return t.me.at == atInsert
	}
	return t.me.at == atClaim && t.proposalOK()
}

// goOn is what the holder of the claim does next.
func goOn(t *turn) {
	t.me.at = atRun
	if t.v.is(checkClaimed) && t.s.expired {
		t.me.at, t.me.item = atRecord, uint8(t.v.items-1)
		for i := range t.v.items {
			t.me.res[i] = skipped
		}
	}
}

// findOut looks for this attempt's own claim, behind the barrier: what was under way has ended by then.
func findOut(t *turn) bool {
	instead := t.v.has(assumeOK) || t.v.has(blindRetry) && t.me.owns
	if t.me.at != atUnknown || instead || !t.v.has(plainRead) && t.s.indexHeld(nil) {
		return false
	}
	switch {
	case t.me.owns && t.v.mode == atomic:
		t.me.tell(saidDone)
	case t.me.owns:
		goOn(t)
	case t.answer():
	case t.v.is(asksLookup):
		t.me.tell(saidNotStarted)
	default:
		t.me.tell(saidUnavailable)
	}
	return true
}

func cannotFindOut(t *turn) bool {
	if t.me.at != atUnknown || !t.s.indexHeld(nil) {
		return false
	}
	t.me.tell(saidUnavailable)
	return true
}

// await is one look of ReplayWait: a plain read, of which only a standing claim is believed.
func await(t *turn) bool {
	if t.me.at != atWait {
		return false
	}
	switch {
	case t.s.terminal(), t.s.phase == executing && t.s.leaseOver:
		t.answerClaim()
	case t.s.phase == absent && t.v.has(plainWait):
		if !t.answer() {
			t.me.tell(saidNotStarted)
		}
	default:
		return false
	}
	return true
}

func waitedEnough(t *turn) bool {
	if t.me.at != atWait {
		return false
	}
	t.me.tell(saidInProgress)
	return true
}

// answer is the order of answers; it is false when none of them is true and the key can be claimed.
func (t *turn) answer() bool {
	switch {
	case t.s.phase != absent:
		t.answerClaim()
	case t.s.gone && !t.v.is(unminted):
		t.me.tell(saidNotMinted)
	case t.s.expired && !t.s.gone && !t.v.has(expiryOnEntry):
		t.me.tell(saidExpired)
	case t.me.sawMoved:
		t.me.tell(saidStale)
	default:
		return false
	}
	return true
}

// answerClaim is what a standing claim answers to whoever did not make it.
func (t *turn) answerClaim() {
	switch {
	case t.s.phase == completed:
		t.me.tell(saidDone)
	case t.s.phase == tombstone:
		t.me.tell(saidSettled)
	case !t.s.leaseOver:
		t.inProgress()
	case t.v.has(takeover):
		t.s.takenBy(t.me)
		t.s.leaseOver, t.me.at = false, atRun
	default:
		t.me.tell(saidAmbiguous)
	}
}

// inProgress answers, or waits first where the mode waits.
func (t *turn) inProgress() {
	if t.v.mode == atomic || t.me == &t.s.canceller {
		t.me.tell(saidInProgress)
		return
	}
	t.me.at = atWait
}
