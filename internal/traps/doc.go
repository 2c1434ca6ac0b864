// Package traps tests the library against faults that other software has had: the traps of PostgreSQL and its drivers
// that an implementation of this kind falls into, and public bug reports. Where a wrong form is known it is shown to fail,
// so that the test of the right form is known to bite.
//
// The reports carry the numbers of the list that they come from. One table, in incidents_test.go, says of each by which test it is
// ruled out, here or elsewhere in the repository, or why it cannot be met; TestTablesAreTrue holds it against the code.
package traps
