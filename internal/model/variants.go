package main

import "slices"

// variants lists every model: first those of the design, which hold, then what would break them.
func variants() []variant {
	return slices.Concat(correct(), limits(), seeded())
}

// What every variant of a group has: the caller asks Lookup after an unknown commit.
const (
	ext  = asksLookup | targetFence
	life = asksLookup | canExpire | canPurge
	tx   = asksLookup | surfaceLocked
	pg   = life | judgedEarly | checkClaimed | lockProposal
)

// correct are the protocol as designed.
func correct() []variant {
	return []variant{
		hold("Execute: 2 confirms, resolve", external, 2, 1, 1, ext),
		hold("Execute: 3 confirms, resolve", external, 3, 1, 1, ext),
		hold("Execute: 4 confirms, resolve", external, 4, 1, 1, ext),
		hold("Execute: 2 confirms, 2 resolves, target without a fence", external, 2, 2, 1, asksLookup),
		hold("Execute: 2 confirms, resolve, expiry, purge", external, 2, 1, 1, life|targetFence),
		hold("Execute: 3 confirms, resolve, expiry, purge", external, 3, 1, 1, life|targetFence),
		hold("Execute: 2 confirms, resolve, cancel", external, 2, 1, 1, ext|canCancel),
		hold("Execute: 2 confirms, resolve, executor compares and sets", external, 2, 1, 1, asksLookup|targetCAS),
		hold("Execute: 2 confirms, resolve before the lease's end", external, 2, 1, 1, asksLookup|anyLease),
		hold("Execute: 2 confirms, resolve, 2 items with progress", external, 2, 1, 2, ext),
		hold("Execute: a statement arrives late; unavailable has said nothing", external, 2, 1, 1, inTransit),
		hold("Execute: a statement arrives late; Cancel keeps it out", external, 1, 1, 1, inTransit|canCancel),
		hold("ExecutePerItem: 2 confirms, resolve, 2 items", perItem, 2, 1, 2, asksLookup),
		hold("ExecutePerItem: 3 confirms, 2 resolves", perItem, 3, 2, 1, asksLookup),
		hold("ExecutePerItem: 2 confirms, resolve, expiry, purge, cancel", perItem, 2, 1, 1, life|canCancel),
		hold("ExecutePerItem: the same with 2 items", perItem, 2, 1, 2, life|canCancel),
		hold("ExecuteAtomic: 4 confirms, ReadSurface", atomic, 4, 0, 1, tx),
		hold("ExecuteAtomic: 3 confirms, ReadSurface, expiry, purge", atomic, 3, 0, 1, tx|life),
		hold("ExecuteAtomic: 3 confirms, ReadSurface, cancel", atomic, 3, 0, 1, tx|canCancel),
		hold("ExecuteTx: 2 confirms, Current, expiry, purge, cancel", atomic, 2, 0, 1, life|canCancel),
		hold("ExecuteTx: 3 confirms, Current, expiry, purge, cancel", atomic, 3, 0, 1, life|canCancel),
		seed(hold("", atomic, 2, 0, 1, tx), "ExecuteAtomic: a blind retry is saved by the guarded completion", blindRetry),
		hold("Execute on PostgreSQL, and an expired claim does not run", external, 2, 1, 1, pg|targetFence),
		hold("ExecuteTx on PostgreSQL, and an expired claim does not run", atomic, 3, 0, 1, pg),
	}
}

// limits are what the design does not promise, or promises too much: each is found, so that nobody takes it for
// granted.
func limits() []variant {
	limit := func(name string, m mode, t trait, expect ...property) variant {
		v := hold("limit: "+name, m, 2, 1, 1, t)
		v.expect = expect
		return v
	}
	return []variant{
		limit("Execute on PostgreSQL: expiry is judged before the wait", external, ext|canExpire|judgedEarly, p5),
		limit("Execute on PostgreSQL: the same, purged meanwhile", external, ext|life|judgedEarly, p1),
		limit("Execute: a statement arrives after Lookup's Proposed", external, ext|inTransit, p6),
		limit("Execute: an earlier reading of the surface claims after stale", external, ext|staleFinal, p5),
		limit("Execute: AcceptUnmintedKeys, and the purger removes a tombstone", external, ext|life|unminted, p1),
		limit("Execute: asynchronous failover loses the claim", external, ext|asyncFailover, p1),
		limit("ExecuteAtomic: asynchronous failover", atomic, tx|asyncFailover, p7),
	}
}

// seeded are bugs that somebody could make.
func seeded() []variant {
	one := hold("", external, 2, 1, 1, ext)
	loose := hold("", external, 2, 2, 1, asksLookup)
	purged := hold("", external, 2, 1, 1, ext|life)
	items := hold("", perItem, 2, 1, 2, asksLookup)
	whole := hold("", atomic, 2, 0, 1, tx)
	return []variant{
		seed(one, "Execute: stale before lookup", staleFirst, p5),
		seed(one, "Execute: no second lookup before stale", noSecondLookup, p5),
		seed(whole, "ExecuteAtomic: surface read but not locked", surfaceUnlocked, p2, p5),
		seed(purged, "Execute: expired told without a look behind the barrier", expiredAtOnce, p5),
		seed(one, "Execute: completion without fence", noFence, p4),
		seed(loose, "Execute: no fence at the target, verdict claimed final", claimedFinal, p3),
		seed(one, "Execute: unknown claim taken for made", assumeOK, p6, p1),
		seed(one, "Execute: unknown completion taken for landed", completionOK, p7),
		seed(purged, "Execute: purge, expiry judged only on entry", expiryOnEntry, p5),
		seed(purged, "Execute: purge without expiry", purgeLive, p5, p1),
		seed(purged, "Execute: purge removes the claim and leaves the proposal", purgeClaimOnly, p5),
		seed(hold("", external, 1, 1, 1, ext|life), "Execute: purge of what is not settled", purgeAmbiguous, p8),
		seed(one, "Execute: whoever finds the lease over runs again", takeover, p1),
		seed(one, "Execute: claim deleted on executor error", deleteOnError, p1),
		seed(one, "Execute: ReplayWait answers from a plain read", plainWait, p5),
		seed(loose, "Execute: verdict without compare-and-set", noVerdictCAS, p4),
		seed(loose, "Execute: Resolve leaves the attempt id in the claim", keepAttempt, p7),
		seed(loose, "Execute: a contradicting late observation is dropped", dropLate, p3),
		seed(one, "Execute: unrecorded is ambiguous though Resolve has decided", unrecordedBlind, p7),
		seed(hold("", external, 2, 1, 1, ext|canCancel), "Execute: Cancel by update", cancelUpdate, p7),
		seed(items, "ExecutePerItem: Resolve does not raise the fence", noRaise, p3),
		seed(items, "ExecutePerItem: item without holding the claim row", looseItem, p3),
		seed(whole, "ExecuteAtomic: unknown commit, blind unguarded retry", blindRetry|noFence, p1),
		seed(whole, "ExecuteAtomic: unknown commit, plain read", plainRead, p6),
	}
}

func hold(name string, m mode, confirmers, resolvers, items int, t trait) variant {
	if m == atomic {
		resolvers = 0 // an uncompleted claim is never visible
	}
	return variant{name: name, mode: m, confirmers: confirmers, resolvers: resolvers, items: items, traits: t}
}

// seed is v with a bug in it.
func seed(v variant, name string, f flaw, expect ...property) variant {
	v.name, v.flaws, v.expect = name, f, expect
	if len(expect) > 0 {
		v.name = "bug: " + name
	}
	return v
}
