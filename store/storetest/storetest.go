// Package storetest is the conformance suite of package store: what it accepts is a store that the broker can be
// trusted with. Call [Run] from the tests of a store; it needs nothing but a [Harness].
//
// The names of the subtests are stable, so that a store may be tracked by them, and carry the numbers of the
// requirements that they prove. Every failure says which rule of package store is broken. [RunBenchmarks] measures the
// same harness.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/store"
)

// Harness is what the suite needs of a store and of its database. All fields are required. The functions must be safe
// for concurrent use and must not fail the test by themselves: they return their errors.
type Harness[TTx any] struct {
	// Store is the store to test. Build it with a lock timeout of one to three seconds: a few cases wait for its end.
	Store store.Store[TTx]

	// Begin begins a transaction on the Store's database, bound to no tenant, as a caller of In does.
	Begin func(ctx context.Context) (TTx, error)
	// Commit ends the transaction. The suite also calls it with handles that Isolate lends or that Store.Begin returns.
	Commit func(ctx context.Context, tx TTx) error
	// Rollback ends the transaction.
	Rollback func(ctx context.Context, tx TTx) error

	// Effect writes, within tx, one row named name into something of the executor's own.
	Effect func(ctx context.Context, tx TTx, name string) error
	// Count tells how many rows of that name are committed. The suite has no transaction open when it calls it.
	Count func(ctx context.Context, name string) (int, error)

	// Advance makes at least d pass on the database's clock. A real store sleeps; the suite asks for less than a second.
	Advance func(d time.Duration)
}

// Run tests a store. newHarness is called once for each subtest and returns an empty store; what it opens it closes
// with t.Cleanup. The subtests run one after the other.
func Run[TTx any](t *testing.T, newHarness func(t *testing.T) Harness[TTx]) {
	on := func(test func(k *kit[TTx])) func(*testing.T) {
		return func(t *testing.T) { test(newKit(t, newHarness(t))) }
	}

	t.Run("S18 the first-run state is empty", on(firstRun))
	t.Run("S11 a proposal is recorded once", on(proposeOnce))
	t.Run("S20 a second proposal changes nothing", on(proposeTwice))
	t.Run("S11 concurrent proposals have one winner", on(proposeConcurrently))
	t.Run("S31 a proposal expires on the database clock", on(proposalExpires))

	t.Run("S12 the first claim wins", on(claimWins))
	t.Run("S12 the second claim sees the first", on(claimLoses))
	t.Run("S12 a claim that is repeated by its attempt stands", on(claimRepeated))
	t.Run("S12 a claim waits for one that is under way", on(claimWaits))
	t.Run("S12 concurrent claims have one winner", on(claimConcurrently))
	t.Run("S12 concurrent transactions have one winner", on(claimInTransactions))
	t.Run("S11 a key without a proposal is not claimed", on(claimUnminted))
	t.Run("S20 other content is not claimed", on(claimOtherDigest))
	t.Run("S31 an expired proposal is not claimed", on(claimExpired))
	t.Run("S11 AcceptUnminted takes a key without a proposal", on(acceptUnminted))
	t.Run("S20 AcceptUnminted refuses what the proposal refuses", on(acceptUnmintedRefuses))
	t.Run("S29 a claim with outcomes is completed at once", on(claimCompleted))
	t.Run("S29 a claim with outcomes is made past expiry", on(claimCompletedPastExpiry))
	t.Run("S14 the first item is recorded as started", on(firstItem))
	t.Run("S14 a claim whose lease is over stands", on(leaseOver))
	t.Run("S31 a lease is shorter than a second", on(leaseIsPrecise))
	t.Run("the mode is stored", on(modes))
	t.Run("a cancelled context claims nothing", on(claimCancelled))

	t.Run("lookup shows content only when it is asked to", on(lookupContent))
	t.Run("lookup returns copies", on(lookupCopies))
	t.Run("lookup does not wait for a claim under way", on(lookupDoesNotWait))
	t.Run("S19 the barrier leaves no trace", on(barrierLeavesNoTrace))
	t.Run("S19 the barrier sees a claim that commits", on(barrierSeesCommit))
	t.Run("S19 the barrier does not see a claim that is rolled back", on(barrierSeesRollback))
	t.Run("S28a a wait ends with the lock timeout", on(lockTimeout))

	t.Run("S14 progress stores, starts and renews", on(progressStores))
	t.Run("S21 progress is fenced", on(progressFenced))
	t.Run("S17 an item's outcome is never overwritten", on(progressKeepsOutcome))
	t.Run("S17 an empty outcome is an outcome", on(progressEmptyOutcome))
	t.Run("S31 progress renews the lease", on(progressRenews))

	t.Run("S17 outcomes come back byte for byte", on(completeBytes))
	t.Run("S17 a completion is never overwritten", on(completeOnce))
	t.Run("S21 completion is fenced", on(completeFenced))
	t.Run("S12 concurrent completions have one winner", on(completeConcurrently))
	t.Run("S20 the digest outlives the completion", on(completeKeepsDigest))
	t.Run("S14 items are told only while uncompleted", on(itemsUntilCompleted))

	t.Run("S16 a key string in two tenants is two keys", on(tenantsAreIndependent))
	t.Run("S16 another tenant's key looks absent", on(tenantsSeeNothing))
	t.Run("S16 another tenant's claim is fenced", on(tenantsAreFenced))
	t.Run("S16 another tenant's proposal is no proposal", on(tenantsDoNotShareProposals))

	t.Run("S28a rollback leaves neither claim nor effect", on(txRollback))
	t.Run("S28a commit leaves both claim and effect", on(txCommit))
	t.Run("S28a a transaction sees its own claim", on(txSeesItself))
	t.Run("S28a a refused claim leaves the transaction usable", on(txRefusedClaim))
	t.Run("S28a a fenced write leaves the transaction usable", on(txFencedWrite))
	t.Run("S28a a duplicate proposal leaves the transaction usable", on(txDuplicateProposal))
	t.Run("S28a the barrier works in a transaction", on(txBarrier))

	t.Run("S28a Begin makes a claim, Commit its completion", on(beginClaims))
	t.Run("S28a Rollback leaves neither claim nor effect", on(beginRolledBack))
	t.Run("S12 Begin tells how a key stands that it did not get", on(beginLoses))
	t.Run("S28a Begin waits no longer than the lock timeout", on(beginTimesOut))
	t.Run("S14 an item's effect and record commit together", on(commitProgress))
	t.Run("S21 Begin holds a claim only under its fence", on(holdFenced))
	t.Run("S21 Commit of what is fenced commits nothing", on(commitFenced))
	t.Run("S28a Begin's transaction outlives its context", on(beginOutlives))
	t.Run("S28a a commit whose context is cancelled is whole", on(commitCancelled))
	t.Run("S15 Isolate works in Begin's transaction", on(beginIsolates))
	t.Run("Begin's transaction is not ended by its handle", on(beginEnded))
	t.Run("S19 AwaitWrites sees an item that commits", on(awaitSeesCommit))
	t.Run("S19 AwaitWrites does not see an item that is rolled back", on(awaitSeesRollback))
	t.Run("S19 AwaitWrites leaves no trace", on(awaitLeavesNoTrace))

	t.Run("S15 Isolate keeps what succeeds", on(isolateKeeps))
	t.Run("S15 Isolate undoes the item that fails", on(isolateOneFails))
	t.Run("S15 Isolate undoes every item that fails", on(isolateAllFail))
	t.Run("S15 Isolate undoes claims with their item", on(isolateUndoesClaims))
	t.Run("Isolate of no items does nothing", on(isolateNone))
	t.Run("Isolate stops at ErrRetryTx", on(isolateRetry))
	t.Run("Isolate lets a panic pass", on(isolatePanic))
	t.Run("Isolate notices or refuses an executor's commit", on(isolateEnded))

	t.Run("S21 a seized claim fences the attempt before", on(seizeFences))
	t.Run("S14 Seize within the lease takes nothing", on(seizeWithinLease))
	t.Run("S17 Seize takes no completed claim", on(seizeCompleted))
	t.Run("S14 Seize of a key without a claim makes none", on(seizeAbsent))
	t.Run("S12 concurrent seizures have one winner", on(seizeConcurrently))
	t.Run("S31 a seized claim has a lease of its own", on(seizeAgain))
	t.Run("S14 an item's transaction keeps Seize out until it commits", on(seizeSeesCommit))
	t.Run("S14 an item's transaction keeps Seize out until it is rolled back", on(seizeSeesRollback))

	t.Run("S21 Settle replaces unsettled outcomes once", on(settleOnce))
	t.Run("S21 what stays unsettled can be settled again", on(settleAgain))
	t.Run("S17 Settle replaces no settled outcomes", on(settleSettled))
	t.Run("S21 Settle is fenced", on(settleFenced))
	t.Run("S12 concurrent settlements have one winner", on(settleConcurrently))
	t.Run("S17 an unsettled completion is a completion", on(unsettledIsCompleted))

	t.Run("S21 an observation stands beside the claim", on(observeBeside))
	t.Run("S17 the first observation stays", on(observeOnce))
	t.Run("S21 an observation needs a claim", on(observeAbsent))
	t.Run("S16 tenants do not share observations", on(observeTenants))

	t.Run("S29 List tells what needs somebody", on(listTells))
	t.Run("S29 List pages without gaps or repeats", on(listPages))
	t.Run("S31 List tells the age on the database clock", on(listAge))
	t.Run("S16 List is of one tenant", on(listTenants))

	t.Run("S29 Purge forgets payloads and keeps the key", on(purgeForgets))
	t.Run("S12 no purge re-opens a key", on(purgeReopensNothing))
	t.Run("R34 a purge leaves identities alone", on(purgeKeepsIdentities))
	t.Run("S29 Purge forgets the content of an unminted key", on(purgeUnminted))
	t.Run("S29 Purge leaves alone what is not settled", on(purgeLeavesAlone))
	t.Run("S29 Purge forgets proposals that expired unclaimed", on(purgeProposals))
	t.Run("S31 retention counts from the settlement", on(purgeRetention))
	t.Run("S29 Purge is bounded", on(purgeLimit))
	t.Run("S16 Purge is of one tenant", on(purgeTenants))

	t.Run("S18 a value that does not exist has no revision", on(valueAbsent))
	t.Run("R113 a swap makes the next revision", on(valueSwapped))
	t.Run("R112 a swap from another revision tells what stands", on(valueStale))
	t.Run("R41 concurrent swaps have one winner", on(valueConcurrently))
	t.Run("R41 revisions neither skip nor repeat", on(valueCounts))
	t.Run("S16 tenants do not share values", on(valueTenants))
	t.Run("S17 a value's content comes back byte for byte", on(valueBytes))
	t.Run("S11 what no value may be is refused", on(valueLimits))
	t.Run("S28a a rollback leaves the value as it was", on(valueRollback))
	t.Run("S28a values ride in a caller's transaction", on(valueCallers))
	t.Run("S15 Isolate undoes a swap with its item", on(valueIsolated))
	t.Run("a cancelled context swaps nothing", on(valueCancelled))
	t.Run("R118 Hold waits for a change under way", on(holderSeesMove))
	t.Run("R118 a change waits for whoever holds", on(moverWaits))
	t.Run("R41 to make a value waits for whoever makes it", on(makerWaits))
	t.Run("S28a two that hold a value do not both wait for ever", on(holdersSwap))
	t.Run("S28a a swap waits no longer than the lock timeout", on(valueTimesOut))

	t.Run("R112 a claim whose guard is met is made", on(guardMet))
	t.Run("R112 a claim whose guard is not met is refused", on(guardUnmet))
	t.Run("R121 a guard comes before every other answer", on(guardFirst))
	t.Run("S11 guards that cannot be checked are refused", on(guardInvalid))
	t.Run("S16 tenants do not share guards", on(guardTenants))
	t.Run("S28a a guard that is not met leaves the transaction usable", on(guardLeavesUsable))
	t.Run("R118 a claim waits for a change of its guard", on(guardSeesMove))
	t.Run("R118 a change waits for the claim that it guards", on(guardKeepsMoveOut))
	t.Run("R118 an item's transaction keeps its guards", on(guardOfItem))
	t.Run("R118 claims and changes of their guard race", on(guardRace))
}
