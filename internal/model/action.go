package main

// action is one kind of step: guarded and named, atomic as the database makes it.
type action struct {
	name string
	by   actor
	do   func(t *turn) bool // changes t.s and is true, or is false where the guard does not hold
	// fault marks what only goes wrong; recovery (P8) must do without it.
	fault bool
}

// actor is who takes a step.
type actor uint8

const (
	aConfirmer actor = iota
	aCanceller
	aResolver
	aServer // the database ends what was left under way
	aClock  // time passes
	aWorld  // everything else: the surface, the target, the purger, a failover
)

// turn is a step being taken: in which variant, on which state (a copy to be changed), by whom.
type turn struct {
	v  *variant
	s  *state
	me *confirmer // for the server's steps: whose transaction it is
	r  *resolver
}

// actions lists every step that a variant has.
func actions(v *variant) []action {
	all := entryActions(v)
	switch v.mode {
	case external:
		all = append(all, externalActions()...)
		all = append(all, recordActions(v)...)
	case perItem:
		all = append(all, itemActions(v)...)
		all = append(all, recordActions(v)...)
	case atomic:
		all = append(all, atomicActions(v)...)
	}
	all = append(all, serverActions()...)
	all = append(all, worldActions(v)...)
	all = append(all, bugActions(v)...)
	if v.is(canCancel) {
		all = append(all, cancelActions(v)...)
	}
	if v.resolvers > 0 {
		all = append(all, resolveActions(v)...)
	}
	return all
}

// commits lists what can become of a transaction of one process that is ready to commit: acknowledged; or the reply is
// lost, and it has landed, was rolled back, is still on its way with its locks held, or has not even been read by the
// server.
func commits(
	v *variant, what string, ready func(*turn) bool, kind func(*turn) txKind, ok func(*turn), unknown place,
) []action {
	by := func(end func(*turn, txKind)) func(*turn) bool {
		return func(t *turn) bool {
			if !ready(t) {
				return false
			}
			end(t, kind(t))
			return true
		}
	}
	lost := func(t *turn, k txKind, n net) { t.me.tx, t.me.net, t.me.tail, t.me.at = k, n, t.me.item, unknown }
	what += ": "
	all := []action{
		{name: what + "committed", do: by(func(t *turn, k txKind) {
			t.me.tail = t.me.item
			land(t.v, t.s, t.me, k)
			t.me.net = netNone
			ok(t)
		})},
		{name: what + "committed, but the reply is lost", fault: true, do: by(func(t *turn, k txKind) {
			t.me.tail = t.me.item
			land(t.v, t.s, t.me, k)
			lost(t, k, netNone)
		})},
		{name: what + "rolled back, and the reply is lost", fault: true,
			do: by(func(t *turn, k txKind) { lost(t, k, netNone) })},
		{name: what + "the commit is under way, and its reply is lost", fault: true,
			do: by(func(t *turn, k txKind) { lost(t, k, netSent) })},
	}
	if v.is(inTransit) {
		all = append(all, action{name: what + "given up before the server has read any of it", fault: true,
			do: by(func(t *turn, k txKind) { lost(t, k, netTransit) })})
	}
	return all
}

func always(k txKind) func(*turn) txKind { return func(*turn) txKind { return k } }

// land is a commit: what a transaction of c does to the database. Its guards hold, since its locks were held until
// now.
func land(v *variant, s *state, c *confirmer, k txKind) {
	switch k {
	case txNone:
	case txClaim:
		s.phase, s.leaseOver, s.unreplicated = executing, false, v.is(asyncFailover)
		s.takenBy(c)
		if v.progress() {
			s.out[0] = started
		}
	case txAtomic:
		s.phase, s.unreplicated = completed, v.is(asyncFailover)
		s.takenBy(c)
		landItems(v, s, c)
	case txAgain:
		landItems(v, s, c)
	case txItem, txLoose:
		landItem(s, c)
	case txRecord:
		landRecord(v, s, c)
	case txCancel:
		s.phase = completed
		s.takenBy(c)
		for i := range v.items {
			s.out[i] = skipped
		}
	}
}

func landItems(v *variant, s *state, c *confirmer) {
	for i := range v.items {
		s.out[i] = c.res[i]
		if c.res[i] == applied {
			s.effect(i)
		}
	}
}

// landItem commits an item's effect and its record, which is a row of its own: it does not change a completed claim's
// outcomes.
func landItem(s *state, c *confirmer) {
	if c.res[c.tail] == applied {
		s.effect(int(c.tail))
	}
	if s.phase == executing {
		s.out[c.tail] = c.res[c.tail]
	}
}

// landRecord is a progress write, or the completion after the last item. Progress that is recorded already stays.
func landRecord(v *variant, s *state, c *confirmer) {
	last := int(c.tail) == v.items-1
	if last {
		s.phase = completed
	}
	switch {
	case v.mode == perItem: // the items are recorded already
	case last:
		copy(s.out[:v.items], c.res[:])
	case s.out[c.tail] == started:
		s.out[c.tail], s.out[c.tail+1], s.leaseOver = c.res[c.tail], started, false
	default:
		s.leaseOver = false
	}
}

// effect has the target do the item; more often than twice is not told apart.
func (s *state) effect(i int) { s.effects[i] = min(s.effects[i]+1, 2) }
