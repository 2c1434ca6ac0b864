// Package traps tests the library against faults that other software has had: the traps of PostgreSQL and its drivers
// that an implementation of this kind falls into, and public bug reports. Where a wrong form is known it is shown to fail,
// so that the test of the right form is known to bite.
//
// The reports carry the numbers of the list that they come from. Those that a test elsewhere in the repository already
// rules out are named in a table at the top of their file, which TestTablesAreTrue holds against the code.
package traps
