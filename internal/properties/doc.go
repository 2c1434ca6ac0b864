// Package properties tests package contract by its properties, over generated documents and outcomes. Run it for longer with
// go test ./internal/properties -rapid.checks=10000.
package properties
