// Package broker executes what a person confirmed: exactly one write per confirmed key, and never a second one.
//
// A [Broker] is made once per service, over a store:
//
//	b, err := broker.New(pgstore.New(pool), nil)
//
// The system proposes ([Broker.Propose] mints the key), a person confirms, and the service executes. The mode is the method:
//
//   - [Broker.ExecuteAtomic] for effects in the same database: the claim, the effects and their outcomes commit together; an item
//     that fails is undone alone. [Broker.ExecuteTx] does the same in a transaction of the caller's.
//   - [Broker.ExecutePerItem] for effects in the same database, item by item, in batches of any size.
//   - [Broker.Execute] for effects anywhere else: the claim is committed before the executor runs, so that at most one
//     attempt is ever made; what a crash leaves open is resolved by reading, never by running again.
//
// A confirm of a key that was confirmed before runs nothing: it replays the stored outcomes, says that the first one is
// still running, or says that nobody knows how it ended. [Broker.Lookup] reads how a key stands and [Broker.Cancel] makes
// sure that it never runs. What nobody knows is found by [Broker.ListUnresolved] and settled by [Broker.Resolve], which reads
// the live system and never runs an executor. [Broker.Purge] forgets payloads, never keys.
//
// # Mutations
//
// [Broker.Mutate] is the same machine for services that speak the Agent contract: an operation that its caller names, a receipt
// instead of outcomes, UNKNOWN before an effect outside the database. [Broker.QueryMutation] reads what became of one,
// [Broker.SealMutation] keeps a missing one from ever running, [Broker.ResolveMutation] advances a receipt by evidence, and
// [Reconcile] is what the other side does about a lost reply.
//
// # Reading the code
//
// The order of answers is one function, answer in answer.go. Who runs is decided by the store's claim statement: for
// PostgreSQL, claimSQL in store/pgstore/sql.go. What is known of an item after its executor returned is in outcome.go. What
// happens when the end of one of the broker's own writes is not known is in record.go, peritem.go and atomic.go.
package broker
