// Package machine holds the state-machine property test: the same random actions on an oracle in memory and on every store, with
// equal answers.
package machine
