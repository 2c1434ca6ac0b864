// Package properties tests package contract, and how package grpcerr sends it, by their properties, over generated documents,
// outcomes, failures and receipts. Run it for longer with
// go test ./internal/properties -rapid.checks=10000.
package properties
