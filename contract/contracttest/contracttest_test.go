package contracttest_test

import (
	"fmt"
	"testing"

	"github.com/confirmexec/confirmexec"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/contract/contracttest"
)

// S10: package contract passes every vector that is about it. What is about keys, fencing and transports is run by internal/vectors.
func TestContract(t *testing.T) {
	contracttest.Run(t, confirmexec.Vectors, contracttest.Contract())
}

// A staleness that forgets an axis is told by the names of the vectors that it fails.
func ExampleCheck() {
	mine := contracttest.Implementation{
		DriftOf: contract.DriftOf,
		IsStale: func(c contract.OperationConfirmation, now contract.CurrentSurfaceState) bool {
			return c.ContractVersion != now.ContractVersion || c.ContractVersion == ""
		},
	}
	for _, f := range contracttest.Check(confirmexec.Vectors, mine) {
		fmt.Println(f.Vector)
	}
	// Output:
	// staleness/a surface that cannot be read
	// staleness/a surface that only an encoding keeps apart
	// staleness/another case of the surface
	// staleness/another normal form of the surface
	// staleness/the surface moved
}
