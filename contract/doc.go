// Package contract is the shared vocabulary of confirm and execute: the operation_recovery.v1 wire types, the staleness
// predicate, item outcomes and the one result that they make, the content digest, the failure codes with their retry
// table, and the typed errors. It is pure: no database, no transport, no logging, no clock, no environment (S9).
//
// A confirmation is what a person confirmed: [OperationConfirmation], decoded strictly by [DecodeConfirmation]. What
// came of it is an [OperationResult]; its outcomes are the only source of the tally, the prose and the recovery
// instruction. A refusal is an error with a [Failure] inside; [CodeOf] reads its code and [FailureCode.Rule] says what
// the caller does next.
package contract
