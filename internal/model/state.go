package main

// The model is bounded: so many processes and items at most.
const (
	maxConfirmers = 4
	maxResolvers  = 2
	maxItems      = 2
)

// state is everything: what the database has committed, what its open transactions hold, the world outside, and where
// each process stands. It is comparable, so that the set of visited states is a map.
//
// A fence is not a number here. Only whether a process's fence equals the standing one is ever asked, and fences only
// grow, so a bit per process says it all: holds. Raising the fence clears everybody else's bit. In the same way owns
// says that the standing claim carries the process's attempt id.
type state struct {
	// The database.
	phase     phase
	out       [maxItems]outcome // recorded per item; of a tombstone, what it was
	leaseOver bool
	gone      bool // the purger has removed the proposal and the tombstone

	// The world.
	moved   bool            // the surface has another version than the one that was proposed
	expired bool            // the key is past its expiry
	effects [maxItems]uint8 // how often the target has done the item
	late    [maxItems]bool  // a call that nobody waits for any longer may still reach the target
	barred  [maxItems]bool  // the target has a tombstone for the item and refuses it
	alarm   bool            // an observation that contradicts a verdict was recorded

	// Failover: the claim is not on the standby yet, and whether there was one.
	unreplicated, failedOver bool

	confirmers [maxConfirmers]confirmer
	canceller  confirmer
	resolvers  [maxResolvers]resolver
}

// phase is how the key stands in the claim table.
type phase uint8

const (
	absent phase = iota
	executing
	completed
	tombstone // completed, its outcomes pruned
)

// outcome is what is recorded of an item.
type outcome uint8

const (
	none        outcome = iota
	started             // ModeExternalProgress: its executor may have been called
	applied             // with positive evidence
	failed              // with evidence of no effect
	skipped             // cancelled, or never run
	ambiguous           // nobody knows
	foundAbsent         // Resolve's verdict, final
	provisional         // Resolve's verdict: absent so far, and nothing keeps a late call out
)

// place is where a confirmer stands in its program.
type place uint8

const (
	atNothing place = iota // unused, or answered
	atLook                 // looks the key up first
	atSurface              // reads the surface
	atBehind               // looks the key up behind the barrier
	atClaim                // claims
	atInsert               // its claim's statement has judged the proposal, and has not inserted yet
	atUnknown              // the end of its claim's transaction is not known
	atWait                 // waits for another one's completion
	atRun                  // about to run an item
	atCommit               // has run it in a transaction that is still open
	atRecord               // writes what is known, under its fence
	atRead                 // does not know whether that landed, and reads
	atRecord2              // writes it once more
	atRead2                // does not know that either
)

// txKind is what a transaction of a process does.
type txKind uint8

const (
	txNone   txKind = iota
	txClaim         // the claim alone
	txAtomic        // claim, effects, outcomes
	txAgain         // effects and outcomes without the claim: only a seeded bug has it
	txItem          // an item's effect and record, holding the claim row
	txLoose         // the same without holding the row: only a seeded bug has it
	txRecord        // progress or completion
	txCancel        // a claim that is completed as it is made
)

// net is how far a transaction is.
type net uint8

const (
	netNone    net = iota
	netOpen        // the process has not asked for the commit
	netSent        // the server has everything and will commit it or abort it; the process has lost its reply
	netTransit     // the server has not even read it, and may never
)

// answer is what a caller was told.
type answer uint8

const (
	nothing         answer = iota
	saidDone               // executed or replayed
	saidSettled            // completed, details pruned
	saidInProgress         //
	saidAmbiguous          //
	saidStale              //
	saidExpired            //
	saidNotMinted          //
	saidNotStarted         // this attempt has done nothing and will not: Lookup's Proposed after an unknown commit
	saidUnavailable        // nothing is said
	saidFenced             //
	saidCancelled          //
)

// confirmer is one attempt at the key.
type confirmer struct {
	at   place
	told answer
	tx   txKind
	net  net
	item uint8             // the item that it is at
	tail uint8             // the item that its transaction is about
	res  [maxItems]outcome // what it knows of the items

	sawMoved bool // what it read of the surface
	owns     bool // the standing claim carries its attempt id
	holds    bool // its fence is the standing one
}

// resolver is a caller of Resolve; once it is done, or dead, another one takes its place.
type resolver struct {
	at    uint8 // 0 idle, 1 has raised the fence, 2 has read
	holds bool
	saw   [maxItems]outcome
}

const (
	resolverIdle uint8 = iota
	resolverRaised
	resolverRead
)

// pack is c as a number, to sort by.
func (c *confirmer) pack() uint64 {
	n := uint64(c.at)
	for _, v := range [...]uint8{
		uint8(c.told), uint8(c.tx), uint8(c.net), c.item, c.tail, uint8(c.res[0]), uint8(c.res[1]),
		bit(c.sawMoved), bit(c.owns), bit(c.holds),
	} {
		n = n<<4 | uint64(v)
	}
	return n
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// tell ends the process's call.
func (c *confirmer) tell(a answer) { c.at, c.told = atNothing, a }

// canonical forgets what can no longer matter and puts the confirmers, which are alike, in order. order says where
// each came from, and whether any moved.
func (s *state) canonical() (order [maxConfirmers]uint8) {
	s.forget()
	var key [maxConfirmers]uint64
	for i := range s.confirmers {
		key[i], order[i] = s.confirmers[i].pack(), uint8(i)
	}
	for i := 1; i < maxConfirmers; i++ {
		for j := i; j > 0 && key[j-1] < key[j]; j-- {
			key[j-1], key[j] = key[j], key[j-1]
			order[j-1], order[j] = order[j], order[j-1]
			s.confirmers[j-1], s.confirmers[j] = s.confirmers[j], s.confirmers[j-1]
		}
	}
	return order
}

// forget clears the memory of processes that have answered and have nothing under way.
func (s *state) forget() {
	for c := range s.attempts {
		if c.net == netNone {
			c.tx, c.tail = txNone, 0
		}
		if c.at == atNothing && c.net == netNone {
			*c = confirmer{told: c.told, owns: c.owns}
		}
	}
	for i := range s.resolvers {
		if s.resolvers[i].at == resolverIdle {
			s.resolvers[i] = resolver{}
		}
	}
}

// attempts yields every process that has an attempt id.
func (s *state) attempts(yield func(*confirmer) bool) {
	for i := range s.confirmers {
		if !yield(&s.confirmers[i]) {
			return
		}
	}
	yield(&s.canceller)
}

// indexHeld says whether an insert of the key by anybody but c is uncommitted: the unique index makes others wait for
// it.
func (s *state) indexHeld(but *confirmer) bool {
	for c := range s.attempts {
		if c != but && c.underWay() && (c.tx == txClaim || c.tx == txAtomic || c.tx == txCancel) {
			return true
		}
	}
	return false
}

// rowHeld says whether an uncommitted transaction of anybody but c holds the claim's row.
func (s *state) rowHeld(but *confirmer) bool {
	for c := range s.attempts {
		if c != but && c.underWay() && (c.tx == txRecord || c.tx == txItem) {
			return true
		}
	}
	return false
}

// underWay says whether the server has an uncommitted transaction of c.
func (c *confirmer) underWay() bool { return c.net == netOpen || c.net == netSent }

// raise takes the fence from everybody.
func (s *state) raise() {
	for c := range s.attempts {
		c.holds = false
	}
	for i := range s.resolvers {
		s.resolvers[i].holds = false
	}
}

// disown takes the attempt id out of the claim.
func (s *state) disown() {
	for c := range s.attempts {
		c.owns = false
	}
}

// takenBy makes the standing claim c's.
func (s *state) takenBy(c *confirmer) {
	s.raise()
	s.disown()
	c.owns, c.holds = true, true
}

// hasAmbiguous says whether an item of the completed claim is still to be settled.
func (s *state) hasAmbiguous() bool { return s.out[0] == ambiguous || s.out[1] == ambiguous }

// terminal says whether the claim is completed, its payload pruned or not.
func (s *state) terminal() bool { return s.phase == completed || s.phase == tombstone }
