package contracttest_test

import (
	"os"
	"os/exec"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/confirmexec/confirmexec"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/contract/contracttest"
)

// incomplete are implementations of which too little can be tested, and what the suite says of them.
var incomplete = map[string]struct {
	contracttest.Implementation
	vector, problem string
}{
	"nothing":             {contracttest.Implementation{}, "every topic", "no topic ran: the implementation has no function"},
	"staleness by halves": {contracttest.Implementation{IsStale: contract.IsStale}, "staleness", "the implementation has no DriftOf"},
	"drift by halves":     {contracttest.Implementation{DriftOf: contract.DriftOf}, "staleness", "the implementation has no IsStale"},
	"a rule of no table":  {contracttest.Implementation{Rule: contract.FailureCode.Rule}, "retry_table", "the implementation has no RetryTable"},
	"one half beside a whole": {
		contracttest.Implementation{Summary: contract.OperationResult.Summary, IsStale: contract.IsStale},
		"staleness", "the implementation has no DriftOf",
	},
}

// S10: a suite that ran nothing has not passed, and a topic that has only some of its functions is not one to skip.
func TestAnIncompleteImplementationFails(t *testing.T) {
	for name, c := range incomplete {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, []contracttest.Failure{{Vector: c.vector, Problem: c.problem}},
				contracttest.Check(confirmexec.Vectors, c.Implementation))
			out, err := runInProcess(t, name)
			assert.Error(t, err, "Run passed")
			assert.Contains(t, out, c.problem)
		})
	}
	out, err := runInProcess(t, "both")
	assert.NoError(t, err, out)
}

// S10: each function is of a topic: an implementation of it alone runs that topic, or fails by what is missing beside it.
func TestNoFunctionIsPassedOver(t *testing.T) {
	whole := reflect.ValueOf(complete())
	for n := range whole.NumField() {
		if field := whole.Type().Field(n); field.Type.Kind() == reflect.Func {
			var i contracttest.Implementation
			reflect.ValueOf(&i).Elem().Field(n).Set(whole.Field(n))
			for _, f := range contracttest.Check(confirmexec.Vectors, i) {
				assert.Regexp(t, "^the implementation has no [A-Z]", f.Problem, field.Name)
			}
		}
	}
}

// runInProcess calls Run on one of the incomplete implementations in a process of its own, and returns what it prints.
func runInProcess(t *testing.T, name string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.timeout=2m", "-test.run=^TestRunInProcess$")
	cmd.Env = append(os.Environ(), "CONTRACTTEST_RUN="+name)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestRunInProcess(t *testing.T) {
	switch name := os.Getenv("CONTRACTTEST_RUN"); name {
	case "":
		t.Skip("this is a part of TestAnIncompleteImplementationFails")
	case "both":
		contracttest.Run(t, confirmexec.Vectors, contracttest.Implementation{IsStale: contract.IsStale, DriftOf: contract.DriftOf})
	default:
		contracttest.Run(t, confirmexec.Vectors, incomplete[name].Implementation)
	}
}
