package main

// resolveActions are Resolve: it raises the fence, reads, and records its verdict by compare-and-set. Each of its
// writes is one step: one whose end is not known cannot be told from a resolver that has not moved yet, or that was
// asked again.
func resolveActions(v *variant) []action {
	all := []action{
		{name: "raises the fence", do: raiseFence},
		{name: "records its verdict", do: verdict},
		{name: "finds its fence raised by another one", do: resolverFenced},
		{name: "dies, or is asked again", do: resolverDies, fault: true},
	}
	if v.mode == perItem {
		all = append(all, action{name: "reads the items' records", do: readRecords})
	} else {
		all = append(all, action{name: "reads the target", do: readTarget},
			action{name: "cannot read the target", do: cannotRead, fault: true})
	}
	for i := range all {
		all[i].by = aResolver
	}
	return all
}

// unsettled says whether there is anything to resolve.
func (s *state) unsettled() bool {
	return s.phase == executing || s.phase == completed && s.hasAmbiguous()
}

func raiseFence(t *turn) bool {
	if t.r.at != resolverIdle || !t.s.unsettled() || t.s.rowHeld(nil) {
		return false
	}
	if t.s.phase == executing && !t.s.leaseOver && !t.v.is(anyLease) {
		return false
	}
	if !t.v.has(noRaise) {
		t.s.raise()
		if !t.v.has(keepAttempt) {
			t.s.disown()
		}
	}
	t.r.at, t.r.holds = resolverRaised, true
	return true
}

// readRecords decides by the items' records alone: the fence is up, so an absent one stays absent.
func readRecords(t *turn) bool {
	return t.read(func(int) outcome { return foundAbsent })
}

// readTarget asks the live system about every item that is not known.
func readTarget(t *turn) bool {
	return t.read(func(i int) outcome {
		switch {
		case t.v.progress() && t.s.out[i] == none: // never started, and now never will
			return foundAbsent
		case t.s.effects[i] > 0:
			return applied
		case t.v.is(targetFence):
			t.s.barred[i] = true
			return foundAbsent
		case t.v.has(claimedFinal):
			return foundAbsent
		}
		return provisional
	})
}

func cannotRead(t *turn) bool {
	return t.s.phase == executing && t.read(func(int) outcome { return ambiguous })
}

// read makes the verdict: recorded items as recorded, the others as judged.
func (t *turn) read(judge func(i int) outcome) bool {
	if t.r.at != resolverRaised {
		return false
	}
	t.r.at = resolverRead
	for i := range t.v.items {
		switch t.s.out[i] {
		case none, started, ambiguous:
			t.r.saw[i] = judge(i)
		default:
			t.r.saw[i] = t.s.out[i]
		}
	}
	return true
}

// verdict completes the claim, or settles its ambiguous items, if the fence is still this resolver's.
func verdict(t *turn) bool {
	if t.r.at != resolverRead || t.s.rowHeld(nil) {
		return false
	}
	if !t.v.has(noVerdictCAS) && (!t.r.holds || !t.s.unsettled()) {
		return false
	}
	if t.s.phase == absent {
		return false
	}
	t.s.phase, t.s.out, t.r.at = completed, t.r.saw, resolverIdle
	return true
}

func resolverFenced(t *turn) bool {
	if t.r.at == resolverIdle || t.r.holds && t.s.unsettled() {
		return false
	}
	t.r.at = resolverIdle
	return true
}

func resolverDies(t *turn) bool {
	if t.r.at == resolverIdle {
		return false
	}
	t.r.at = resolverIdle
	return true
}
