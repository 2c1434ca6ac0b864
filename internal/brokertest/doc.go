// Package brokertest tests the broker on every store: the same cases on memstore, SQLite and PostgreSQL, in every mode. It
// stands apart from package broker so that importers of that package do not get the drivers' checksums.
package brokertest
