package main

// externalActions are what can become of a call on an executor whose effect is outside the database.
func externalActions() []action {
	return []action{
		{name: "runs the item: the target does it", do: func(t *turn) bool { return call(t, applied) && t.act() }},
		{name: "runs the item: the target refuses, nothing happens", do: func(t *turn) bool { return call(t, failed) }},
		{name: "runs the item: the target does it, but the reply is lost", fault: true,
			do: func(t *turn) bool { return call(t, ambiguous) && t.act() }},
		{name: "runs the item: no reply, the call may still be on its way", fault: true,
			do: func(t *turn) bool {
				if !call(t, ambiguous) {
					return false
				}
				t.s.late[t.me.item] = true
				return true
			}},
	}
}

// call is an executor that has come back with what it knows.
func call(t *turn, known outcome) bool {
	if t.me.at != atRun {
		return false
	}
	t.me.res[t.me.item], t.me.at = known, atRecord
	if known != applied && t.v.has(deleteOnError) {
		t.s.phase, t.s.out = absent, [maxItems]outcome{}
		t.s.raise()
		t.s.disown()
		t.me.tell(saidUnavailable)
	}
	return true
}

// act is the effect, unless the target refuses it.
func (t *turn) act() bool {
	i := t.me.item
	if t.refuses(int(i)) {
		return false
	}
	t.s.effect(int(i))
	return true
}

func (t *turn) refuses(i int) bool { return t.s.barred[i] || t.v.is(targetCAS) && t.s.moved }

// itemActions are ExecutePerItem's item: one transaction that holds the claim's row under its fence.
func itemActions(v *variant) []action {
	ready := func(t *turn) bool { return t.me.at == atCommit && t.me.net == netOpen }
	kind := func(t *turn) txKind { return t.me.tx }
	return append([]action{
		{name: "takes the claim's row and runs the item: done", do: func(t *turn) bool { return takeRow(t, applied) }},
		{name: "takes the claim's row and runs the item: it fails and is undone",
			do: func(t *turn) bool { return takeRow(t, failed) }},
		{name: "finds the item recorded already", do: alreadyRecorded},
		{name: "finds its fence raised before the item", do: itemFenced},
		{name: "has waited too long for the claim's row", do: rowTimeout},
		{name: "finds its item's transaction aborted", do: itemAborted},
	}, commits(v, "its item's transaction", ready, kind, nextItem, atRun)...)
}

// takeRow begins the item's transaction. The barrier for an item whose commit is not known is the same row lock.
func takeRow(t *turn, known outcome) bool {
	if t.me.at != atRun || t.s.rowHeld(nil) || !t.held() || t.s.out[t.me.item] != none {
		return false
	}
	t.me.res[t.me.item], t.me.at, t.me.net, t.me.tx = known, atCommit, netOpen, txItem
	if t.v.has(looseItem) {
		t.me.tx = txLoose
	}
	return true
}

func alreadyRecorded(t *turn) bool {
	if t.me.at != atRun || t.s.rowHeld(nil) || !t.held() || t.s.out[t.me.item] == none {
		return false
	}
	t.me.res[t.me.item] = t.s.out[t.me.item]
	nextItem(t)
	return true
}

func itemFenced(t *turn) bool {
	if t.me.at != atRun || t.s.rowHeld(nil) || t.held() {
		return false
	}
	t.me.tell(saidFenced)
	return true
}

func rowTimeout(t *turn) bool {
	if t.me.at != atRun || !t.s.rowHeld(nil) {
		return false
	}
	t.me.tell(saidAmbiguous)
	return true
}

func itemAborted(t *turn) bool {
	if t.me.at != atCommit || t.me.net != netNone {
		return false
	}
	t.me.at = atRun
	return true
}

func nextItem(t *turn) {
	if int(t.me.item) == t.v.items-1 {
		t.me.at = atRecord
		return
	}
	t.me.item++
	t.me.at = atRun
}

// atomicActions are the one transaction of ExecuteTx and ExecuteAtomic.
func atomicActions(v *variant) []action {
	ready := func(t *turn) bool {
		return t.me.at == atCommit && t.me.net == netOpen && (t.me.tx == txAtomic || t.v.has(noFence))
	}
	kind := func(t *turn) txKind { return t.me.tx }
	done := func(t *turn) { t.me.tell(saidDone) }
	return append([]action{
		{name: "its claim is inserted, its transaction is open", do: insert},
		{name: "runs the items: done", do: func(t *turn) bool { return runInTx(t, applied) }},
		{name: "runs the items: they fail and are undone", do: func(t *turn) bool { return runInTx(t, failed) }},
		{name: "its transaction meets a serialization failure and is run again", do: rerun},
		{name: "finds that its transaction did not happen, and runs it again", do: rerunAbsent},
		{name: "finds its transaction aborted", do: txAborted},
	}, commits(v, "its transaction", ready, kind, done, atUnknown)...)
}

func insert(t *turn) bool {
	if !claims(t) {
		return false
	}
	t.me.tx, t.me.net = txAtomic, netOpen
	goOn(t)
	if t.me.at == atRecord { // completed as skipped, in the same transaction
		t.me.at = atCommit
	}
	return true
}

func runInTx(t *turn, known outcome) bool {
	if t.me.at != atRun || t.me.net != netOpen {
		return false
	}
	for i := range t.v.items {
		t.me.res[i] = known
	}
	t.me.at = atCommit
	return true
}

// rerun is 40001 or 40P01 before the commit: proof of rollback.
func rerun(t *turn) bool {
	if t.me.at != atCommit || t.me.net != netOpen {
		return false
	}
	*t.me = confirmer{at: t.v.first(), owns: t.me.owns}
	return true
}

func rerunAbsent(t *turn) bool {
	if t.me.at != atUnknown || t.s.indexHeld(nil) || t.s.phase != absent {
		return false
	}
	*t.me = confirmer{at: t.v.first()}
	return true
}

func txAborted(t *turn) bool {
	if t.me.at != atRun && t.me.at != atCommit || t.me.net != netNone {
		return false
	}
	t.me.at = atUnknown
	return true
}
