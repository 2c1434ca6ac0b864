// Package fencerace races a fence against the writers that it is to stop, on PostgreSQL at READ COMMITTED: a mover moves an epoch,
// a versioned value, while writers check it and write. A write is stale when the move away from its epoch was committed before it,
// or could not see it. The forms of the check that are known to be wrong let stale writes through in the same test, so that the
// test of the right ones is known to bite.
//
// `go test` plays a few hundred rounds; CONFIRMEXEC_FENCERACE=10000 plays that many.
package fencerace
