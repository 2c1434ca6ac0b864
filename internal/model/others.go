package main

// serverActions end what a process has left under way: it died, or it gave up waiting.
func serverActions() []action {
	return []action{
		{name: "the commit under way lands", by: aServer, do: landLate},
		{name: "the transaction is aborted, its session is gone", by: aServer, do: abort},
		{name: "the statement that was given up reaches the server", by: aServer, do: arrive},
		{name: "the statement that was given up never reaches the server", by: aServer, do: vanish},
	}
}

func landLate(t *turn) bool {
	if t.me.net != netSent {
		return false
	}
	land(t.v, t.s, t.me, t.me.tx)
	t.me.net = netNone
	return true
}

func abort(t *turn) bool {
	if !t.me.underWay() {
		return false
	}
	t.me.net = netNone
	return true
}

// arrive is a statement whose sender has gone: it is judged when it arrives.
func arrive(t *turn) bool {
	if t.me.net != netTransit || t.s.indexHeld(t.me) || t.s.rowHeld(t.me) {
		return false
	}
	switch t.me.tx {
	case txClaim:
		if t.s.phase == absent && t.proposalOK() {
			land(t.v, t.s, t.me, txClaim)
		}
	case txRecord:
		if t.held() {
			land(t.v, t.s, t.me, txRecord)
		}
	case txCancel:
		if t.s.phase == absent && !t.s.gone {
			land(t.v, t.s, t.me, txCancel)
		}
	default: // the others begin with a lock that was acknowledged: they cannot be in transit
	}
	t.me.net = netNone
	return true
}

func vanish(t *turn) bool {
	if t.me.net != netTransit {
		return false
	}
	t.me.net = netNone
	return true
}

// worldActions are time, the surface, the target, the purger and the failover.
func worldActions(v *variant) []action {
	all := []action{
		{name: "the surface moves", by: aWorld, do: surfaceMoves},
		{name: "the lease ends", by: aClock, do: leaseEnds},
	}
	for i := range v.items {
		all = append(all, action{name: "the late call reaches the target", by: aWorld,
			do: func(t *turn) bool { return lateCall(t, i) }})
	}
	if v.is(canExpire) {
		all = append(all, action{name: "the key expires", by: aWorld, do: expire})
	}
	if v.is(canPurge) {
		all = append(all, action{name: "the purger prunes the outcomes", by: aWorld, do: prune},
			action{name: "the purger removes the key", by: aWorld, do: remove})
	}
	if v.is(asyncFailover) {
		all = append(all, action{name: "the standby catches up", by: aWorld, do: catchUp},
			action{name: "failover to a standby that has not got the last commit", by: aWorld, fault: true, do: failOver})
	}
	return all
}

// surfaceMoves is anybody's change of the surface, also by the effect itself. Whoever has locked the surface keeps it
// out.
func surfaceMoves(t *turn) bool {
	if t.s.moved {
		return false
	}
	for c := range t.s.attempts {
		if t.v.is(surfaceLocked) && !t.v.has(surfaceUnlocked) && c.locksSurface() {
			return false
		}
	}
	t.s.moved = true
	return true
}

// locksSurface says whether c is in a transaction that has read the surface.
func (c *confirmer) locksSurface() bool {
	switch c.at {
	case atBehind, atClaim, atInsert:
		return true
	default:
		return c.tx == txAtomic && c.underWay()
	}
}

func leaseEnds(t *turn) bool {
	if t.s.phase != executing || t.s.leaseOver {
		return false
	}
	t.s.leaseOver = true
	return true
}

func lateCall(t *turn, i int) bool {
	if !t.s.late[i] {
		return false
	}
	t.s.late[i] = false
	if !t.refuses(i) {
		t.s.effect(i)
	}
	return true
}

func expire(t *turn) bool {
	if t.s.expired {
		return false
	}
	t.s.expired = true
	return true
}

func (t *turn) mayPurge() bool {
	return (t.s.expired || t.v.has(purgeLive)) && !t.s.rowHeld(nil)
}

// prune leaves a tombstone of a completed claim with nothing to settle.
func prune(t *turn) bool {
	if !t.mayPurge() || t.s.phase != completed || t.s.hasAmbiguous() && !t.v.has(purgeAmbiguous) {
		return false
	}
	t.s.phase = tombstone
	return true
}

// remove takes the tombstone and the proposal together, or a proposal that was never confirmed.
func remove(t *turn) bool {
	leave := t.v.has(purgeLive | purgeClaimOnly | expiryOnEntry)
	if !t.mayPurge() || t.s.gone || t.s.phase != tombstone && (t.s.phase != absent || leave) {
		return false
	}
	for c := range t.s.attempts {
		if t.v.is(lockProposal) && c.at == atInsert {
			return false
		}
	}
	t.s.phase, t.s.out, t.s.gone = absent, [maxItems]outcome{}, !leave
	t.s.raise()
	t.s.disown()
	return true
}

func catchUp(t *turn) bool {
	if !t.s.unreplicated {
		return false
	}
	t.s.unreplicated = false
	return true
}

// failOver loses the claim and what was written after it; what was under way is aborted.
func failOver(t *turn) bool {
	if !t.s.unreplicated {
		return false
	}
	t.s.phase, t.s.out, t.s.leaseOver = absent, [maxItems]outcome{}, false
	if t.v.mode != external {
		t.s.effects = [maxItems]uint8{}
	}
	t.s.unreplicated, t.s.failedOver = false, true
	t.s.disown()
	for c := range t.s.attempts {
		c.net = netNone
	}
	return true
}

// cancelActions are Cancel: it looks behind the barrier and then claims the key as cancelled.
func cancelActions(v *variant) []action {
	ready := func(t *turn) bool {
		return t.me.at == atClaim && !t.v.has(cancelUpdate) && t.s.phase == absent && !t.s.gone && !t.s.indexHeld(t.me)
	}
	all := commits(v, "its cancellation", ready, always(txCancel), func(t *turn) { t.me.tell(saidCancelled) }, atUnknown)
	all = append(all,
		action{name: "looks behind the barrier", do: cancelLook},
		action{name: "finds the key taken", do: cancelRefused},
		action{name: "has waited too long for another one's transaction", do: cancelTimeout},
		action{name: "does not know how its transaction ended", do: cancelUnknown})
	for i := range all {
		all[i].by = aCanceller
	}
	return all
}

func cancelLook(t *turn) bool {
	if t.me.at != atLook || t.s.indexHeld(t.me) {
		return false
	}
	if t.s.phase != absent || t.s.gone {
		return t.answer()
	}
	t.me.at = atClaim
	return true
}

func cancelTimeout(t *turn) bool {
	if t.me.at != atLook && t.me.at != atClaim || !t.s.indexHeld(t.me) {
		return false
	}
	t.me.tell(saidInProgress)
	return true
}

func cancelRefused(t *turn) bool {
	return t.me.at == atClaim && (t.s.phase != absent || t.s.gone) && t.answer()
}

func cancelUnknown(t *turn) bool {
	if t.me.at != atUnknown {
		return false
	}
	t.me.tell(saidUnavailable)
	return true
}
