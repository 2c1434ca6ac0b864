// Package fencetests runs the suite of fencing/fencetest on package fencing over SQLite and PostgreSQL, and on implementations whose
// checks are broken in ways that only a database with several writers shows.
package fencetests
