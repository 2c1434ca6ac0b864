package sibling_test

import (
	"testing"

	"github.com/confirmexec/confirmexec"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/contract/contracttest"

	"sibling"
)

// The service speaks the contract: its own parts, and for the rest package contract, which it uses as it is. Topics that it has no
// part in are skipped.
func TestContract(t *testing.T) {
	i := contracttest.Contract()
	i.DriftOf, i.Tally = sibling.Drift, sibling.Tally
	i.IsStale = func(c contract.OperationConfirmation, now contract.CurrentSurfaceState) bool {
		return len(sibling.Drift(c, now)) > 0
	}
	contracttest.Run(t, confirmexec.Vectors, i)
}
