package contracttest_test

import (
	"fmt"
	"testing"

	"github.com/confirmexec/confirmexec"
	"github.com/confirmexec/confirmexec/contract/contracttest"
)

// The test that an implementation has: every vector is a subtest.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestContract(t *testing.T)
		contracttest.Run(t, confirmexec.Vectors, contracttest.Contract()) // one's own functions in the place of these
	}
}

// An implementation that is partly one's own: what it does not replace is package contract.
func ExampleContract() {
	mine := contracttest.Contract()
	fmt.Println(len(contracttest.Check(confirmexec.Vectors, mine)), "wrong")
	mine.Canonical = func(document []byte) ([]byte, error) { return document, nil } // leaves the order of members as it is
	fmt.Println(len(contracttest.Check(confirmexec.Vectors, mine)) > 0)
	// Output:
	// 0 wrong
	// true
}
