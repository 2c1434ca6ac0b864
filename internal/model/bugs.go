package main

// bugActions are the steps that only seeded bugs have; the other bugs change a guard of a step where it stands.
func bugActions(v *variant) []action {
	var all []action
	if v.has(assumeOK) {
		all = append(all, action{name: "takes its unknown claim for made", do: takeForMade})
	}
	if v.has(blindRetry) {
		all = append(all, action{name: "runs its unknown transaction again", do: runAgain},
			action{name: "its completion changes no row", do: againFenced})
	}
	if v.has(cancelUpdate) {
		all = append(all, action{name: "cancels by an update", by: aCanceller, do: cancelByUpdate})
	}
	return all
}

func takeForMade(t *turn) bool {
	if t.me.at != atUnknown {
		return false
	}
	t.me.at = atRun
	return true
}

// runAgain takes a claim with its own attempt id for the retry's.
func runAgain(t *turn) bool {
	if t.me.at != atUnknown || t.s.indexHeld(nil) || !t.me.owns {
		return false
	}
	t.me.at, t.me.tx, t.me.net = atRun, txAgain, netOpen
	return true
}

// againFenced is what saves a blind retry: the completion is guarded, and its transaction is rolled back.
func againFenced(t *turn) bool {
	if t.me.at != atCommit || t.me.tx != txAgain || t.v.has(noFence) {
		return false
	}
	t.me.net = netNone
	t.me.tell(saidFenced)
	return true
}

func cancelByUpdate(t *turn) bool {
	if t.me.at != atClaim || t.s.rowHeld(nil) || t.s.terminal() {
		return false
	}
	if t.s.phase == executing {
		t.s.phase = completed
		for i := range t.v.items {
			t.s.out[i] = skipped
		}
	}
	t.me.tell(saidCancelled)
	return true
}
