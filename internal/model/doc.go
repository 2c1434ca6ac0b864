// Command model checks the protocol of confirm and execute by visiting every state that it can reach:
//
//	go run ./internal/model            # the table: every variant, how many states, what was found
//	go run ./internal/model -traces    # and each counterexample, step by step
//	go run ./internal/model -only Tx   # some of the variants
//
// It explores, breadth first, every interleaving of two to four confirms of one key with Resolve, Cancel, the purger,
// time, the surface, the target and everything that can get lost, and checks the properties P1 to P8 (property.go) on
// every step. Three kinds of variant (variants.go): the design's own, which must hold; limits of what is promised,
// which must be found so that nobody takes them for granted; and seeded bugs, each of which must be found with the
// property that it breaks, or else the model would prove nothing. The bugs are switches of the model, not of the
// product.
//
// # How to read it
//
// A state (state.go) is one small comparable struct, and an action (action.go) is a guard and a change of it, as
// atomic as the database makes it. Whatever can end in several ways is several actions: commits (action.go) makes of
// one transaction "committed", "committed, but the reply is lost", "rolled back, and the reply is lost", and "under
// way", with its locks held until the server lands or aborts it.
//
// A crash is no action. A process that has died takes no further step, one that is paused takes them late, and the
// search has every interleaving in which it does; so each state is also the one after a crash of any of the processes.
// What dies with a process, its open transaction, is the server's to abort. For the same reason P8 lets nobody help
// who has begun: a state must be settled by a later Resolve, by time, and by the server alone. The clock is the
// database's: a lease may end, and a key expire, at any moment.
//
// Fences and attempt ids are a bit per process, "mine is the standing one": only equality is ever asked.
//
// # Which step is which code
//
// Keep them in step: a change of the right side is a change of the left.
//
//	look                    broker/executetx.go  readSurface: the lookup
//	readSurface             the caller's Request.Current; broker/executetx.go readSurface: ReadSurface
//	answer                  broker/answer.go     answer
//	answerClaim             broker/answer.go     told, replay, ambiguous
//	lookBehind              broker/claim.go      lookBehind; store LookupParams.Barrier (pgstore/sql.go probeSQL)
//	claims, refused         broker/claim.go      claim; pgstore/sql.go claimSQL, memstore/record.go take
//	judge, conflict         pgstore/sql.go       claimSQL: the SELECT, and the insert that may wait at the unique index
//	lockTimeout             store.ErrLockTimeout; broker/errors.go fromStore
//	findOut, cannotFindOut  broker/execute.go    claimOwn, standing; broker/lookup.go Lookup (Proposed is "not started")
//	await, waitedEnough     broker/claim.go      await
//	externalActions         broker/run.go        runUntil; broker/outcome.go external, known
//	canRecord, recorded     broker/execute.go    progress, complete; pgstore/sql.go held, completeSQL, renewSQL
//	readBack, landed        broker/execute.go    ensure, sawLanded
//	fenced, unrecorded      broker/execute.go    ensure, unrecorded
//	atomicActions           broker/executetx.go  ExecuteTx, runTx, and the caller's commit; ExecuteAtomic's own
//	cancelActions           broker/cancel.go     Cancel
//	itemActions             ExecutePerItem: the transaction of an item
//	resolveActions          Resolve: fence, StatusReader, verdict
//	prune, remove           Purge
//
// The last four lines, and ExecuteAtomic, are modelled from the design; where no code stands yet, the model comes
// first.
//
// # What it leaves out
//
// Digests and conflicts (I3), the shape of outcomes (I10), tenants (I13), what is logged (I16), the schema's own
// checks (I17) and pooled sessions (I20) are tests of their own. Of I14 only that a call can always go on or time out
// is checked, not how long it takes. Guards, the authoriser, batches in one lease (Config.NoProgress), isolation
// levels above READ COMMITTED, Mutate, and a target that removes duplicates by itself are not modelled. An executor
// that lies about its effect is not caught by any protocol. Resolve's own unknown commits need no steps: see
// resolve.go.
package main
