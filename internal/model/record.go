package main

// recordActions are the fenced writes of a run: the progress between two items, and the completion. When the end of
// one is not known it is read, and written once more, which the fence lets in only once.
func recordActions(v *variant) []action {
	first := func(t *turn) bool { return t.me.at == atRecord && t.canRecord() }
	second := func(t *turn) bool { return t.me.at == atRecord2 && t.canRecord() }
	all := []action{
		{name: "finds its fence raised", do: fenced},
		{name: "its record changes no row, and the reply is lost", fault: true, do: fencedUnheard},
		{name: "reads what became of its record", do: readBack},
		{name: "has waited too long to record", do: recordTimeout},
	}
	all = append(all, commits(v, "its record", first, always(txRecord), recorded, atRead)...)
	return append(all, commits(v, "its record, written again", second, always(txRecord), recorded, atRead2)...)
}

// held says whether the standing claim is uncompleted and under this fence.
func (t *turn) held() bool { return t.s.phase == executing && t.me.holds }

func (t *turn) canRecord() bool {
	if t.s.rowHeld(nil) {
		return false
	}
	return t.held() || t.v.has(noFence) && t.s.phase != absent
}

// recorded goes on after a record that is known to have landed.
func recorded(t *turn) {
	if int(t.me.item) == t.v.items-1 {
		t.me.tell(saidDone)
		return
	}
	t.me.item++
	t.me.at = atRun
}

// fenced is a record that changes no row. Before that is told, one that was written twice is looked for again.
func fenced(t *turn) bool {
	if t.me.at != atRecord && t.me.at != atRecord2 || t.s.rowHeld(nil) || t.canRecord() {
		return false
	}
	if t.me.at == atRecord2 && t.landed() {
		recorded(t)
		return true
	}
	t.observe()
	t.me.tell(saidFenced)
	return true
}

// observe records what the attempt knows of an effect that the verdict denies, before it ends.
func (t *turn) observe() {
	if t.contradicts() && !t.v.has(dropLate) {
		t.s.alarm = true
	}
}

// fencedUnheard is a fenced record whose answer nobody has heard.
func fencedUnheard(t *turn) bool {
	if t.s.rowHeld(nil) || t.canRecord() {
		return false
	}
	switch t.me.at {
	case atRecord:
		t.me.at = atRead
	case atRecord2:
		t.me.at = atRead2
	default:
		return false
	}
	return true
}

// contradicts says whether the attempt knows of an effect that the verdict does not.
func (t *turn) contradicts() bool {
	if t.v.mode != external { // what it did was undone
		return false
	}
	for i := range t.v.items {
		if t.me.res[i] == applied && (t.s.out[i] == foundAbsent || t.s.out[i] == provisional) {
			return true
		}
	}
	return false
}

// landed is ensure's reading: the claim is this attempt's own and has what it wrote.
func (t *turn) landed() bool {
	if !t.me.owns {
		return false
	}
	if int(t.me.item) == t.v.items-1 {
		return t.s.terminal()
	}
	return t.s.out[t.me.item] != started
}

// readBack reads without waiting for its own write: the barrier is for inserts.
func readBack(t *turn) bool {
	if t.me.at != atRead && t.me.at != atRead2 {
		return false
	}
	switch {
	case t.landed(), t.v.has(completionOK):
		recorded(t)
	case t.me.at == atRead:
		t.me.at = atRecord2
	default:
		t.unrecorded()
	}
	return true
}

// unrecorded answers when it cannot be recorded: what stands by now, else that the key was taken, else ambiguous.
func (t *turn) unrecorded() {
	t.observe()
	switch {
	case t.v.has(unrecordedBlind):
		t.me.tell(saidAmbiguous)
	case t.s.terminal():
		t.answerClaim()
	case !t.me.owns:
		t.me.tell(saidFenced)
	default:
		t.me.tell(saidAmbiguous)
	}
}

// recordTimeout ends a wait for a row: for this attempt's own write that is still under way.
func recordTimeout(t *turn) bool {
	if t.me.at != atRecord && t.me.at != atRecord2 || !t.s.rowHeld(nil) {
		return false
	}
	t.me.tell(saidAmbiguous)
	return true
}
