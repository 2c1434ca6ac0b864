// Package confirmexec is the guided tour of a library for the most dangerous hop in software that acts for people: a person
// confirms an operation that the system proposed, and only then it is executed. A double tap, a lost reply, a crash, or a page
// that changed underneath never becomes a second write, a wrong write or a false report.
//
// The package itself holds no code but for what it embeds. The parts, from the pure to the durable:
//
//   - contract: the operation_recovery.v1 wire types, staleness, outcomes and their one result, the content digest, failure
//     codes with their retry table. It has no I/O of any kind.
//   - store: the interfaces that a database implements. store/pgstore is PostgreSQL under row-level security,
//     store/sqlitestore one file on one host, store/memstore for unit tests of executors, store/storetest the conformance
//     suite that every store passes.
//   - broker: the one type that services use. It mints keys, claims them, runs executors and answers confirms.
//   - fencing: what is too late is kept out by checks that are atomic with the write. fencing/peer is who is at the other end of
//     a connection, fencing/fencetest the suite for other implementations.
//   - grpcerr: the same failures over gRPC, without loss; what a failed call tells, and what may be sent again. With its children
//     the only package for importers that imports gRPC (examples do too); grpcerr/identity tells handlers who calls.
//   - httperr: the same failures over plain HTTP, as problem documents, and the Idempotency-Key header.
//   - examples: `go run ./examples` walks through a real case; examples/quickstart is the program of README.md.
//
// [Vectors] are the golden vectors and JSON Schemas of the contract, for siblings in other repositories and languages;
// contract/contracttest runs them.
//
// # One promise
//
// One write per confirmed key, provided that acknowledged commits survive. Every other system re-executes after a crash; this
// one never does: an unknown outcome is resolved by reading, never by writing again.
//
// # Numbers and names
//
// Numbers such as S12 and R116 are requirements: internal/coverage/requirements.txt has them in short words. J numbers are
// invariants, and A numbers finer points, that the sentences say beside which they stand.
//
// Reasons begin with "pramaan.", the name under which the contract was first written. It is part of what is stored and sent, and
// stays. So is "w02.", with which the protocol versions of the Agent contract begin in vectors and examples.
//
// # Where exactly once is decided
//
// Four files, in this order: broker/doc.go says which mode is which; broker/execute.go (or executetx.go) shows that an
// executor only runs under a claim; broker/claim.go takes the claim and leaves every other answer to the order in
// answer.go; and claimSQL in store/pgstore/sql.go is the one statement that lets one attempt in.
package confirmexec
