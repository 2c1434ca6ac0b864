package main

// mode is a method of the broker.
type mode uint8

const (
	external mode = iota // Execute
	perItem              // ExecutePerItem
	atomic               // ExecuteTx and ExecuteAtomic
)

// variant is one model: a mode, who takes part, what can go wrong, and what is expected of it.
type variant struct {
	name       string
	mode       mode
	confirmers int
	resolvers  int
	items      int
	traits     trait
	flaws      flaw
	expect     []property // what must be found broken; nil: nothing may be
}

// trait is a set of what a variant has.
type trait uint32

const (
	canCancel     trait = 1 << iota // a canceller takes part
	canExpire                       // the key can expire
	canPurge                        // the purger takes part
	surfaceLocked                   // the surface is read and locked in the claim's transaction (TxRequest.ReadSurface)
	targetCAS                       // the executor writes by compare-and-set on the surface's version (Item.Expected)
	targetFence                     // Resolve's reader leaves a tombstone at the target where it finds nothing
	unminted                        // Config.AcceptUnmintedKeys
	asksLookup                      // after an unknown commit the caller asks Lookup, and believes its Proposed for ever
	staleFinal                      // stale is taken for "this key will never run"
	judgedEarly                     // PostgreSQL: the claim's statement judges the proposal before it waits at the index
	checkClaimed                    // a claim that finds its proposal expired is completed as skipped, and does not run
	lockProposal                    // the claim's statement locks the proposal, so that the purger waits for it
	inTransit                       // a statement that was given up may reach the server arbitrarily late
	asyncFailover                   // a failover loses the last commit
	anyLease                        // Resolve does not wait for the lease's end
)

func (v *variant) is(t trait) bool { return v.traits&t != 0 }

// flaw is a set of seeded bugs.
type flaw uint32

const (
	staleFirst      flaw = 1 << iota // stale is told before the key is looked up
	noSecondLookup                   // the key is looked up, then stale is told without another look behind the barrier
	surfaceUnlocked                  // the surface is read in the claim's transaction, but not locked
	expiredAtOnce                    // expired is told from the claim's own statement, without a look behind the barrier
	expiryOnEntry                    // expiry is judged when a call comes in and never again; a purge removes the claim
	noFence                          // the completion does not compare the fence
	claimedFinal                     // "found absent" is final though the target cannot be fenced
	assumeOK                         // an unknown claim is taken for made
	completionOK                     // an unknown completion is taken for landed
	blindRetry                       // an unknown transaction is run again as if its claim were the retry's own
	plainRead                        // an unknown commit is looked up without the barrier
	plainWait                        // ReplayWait answers from a plain read though it shows no claim
	takeover                         // whoever finds the lease over runs the executor again
	deleteOnError                    // the claim is deleted when the executor fails
	purgeLive                        // the purger does not look at the expiry
	purgeClaimOnly                   // the purger removes the claim and leaves the proposal
	purgeAmbiguous                   // the purger prunes what is not settled
	noRaise                          // Resolve does not raise the fence before it reads
	noVerdictCAS                     // Resolve's verdict is written without comparing the fence
	keepAttempt                      // Resolve raises the fence and leaves the attempt id in the claim
	dropLate                         // a late observation that contradicts a verdict is dropped
	unrecordedBlind                  // a run that cannot be recorded is ambiguous, whatever Resolve has made of it
	looseItem                        // the item's transaction checks the claim without holding its row
	cancelUpdate                     // Cancel updates instead of inserting
)

func (v *variant) has(f flaw) bool { return v.flaws&f != 0 }

// progress says whether items are recorded one by one in an external mode: ModeExternalProgress.
func (v *variant) progress() bool { return v.mode == external && v.items > 1 }

// first is where a confirm starts.
func (v *variant) first() place {
	if v.is(surfaceLocked) || v.has(noSecondLookup) {
		return atLook
	}
	return atSurface
}

// initial is the state in which the key has just been proposed.
func (v *variant) initial() state {
	var s state
	for i := range v.confirmers {
		s.confirmers[i].at = v.first()
	}
	if v.is(canCancel) {
		s.canceller.at = atLook
	}
	s.canonical()
	return s
}
