package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// mockAdapter makes calls: it enters them in a ledger, and that is all. Its memory, like that of a real one, is not the database's.
//
// A number tells what becomes of the call: one that ends in "fail" is made, and the answer is an error; "hold" lasts until it is
// hung up; "stubborn" until somebody ends it; every other is over at once.
type mockAdapter struct {
	path  string
	trace trace

	mu    sync.Mutex // the ledger's
	calls sync.Map   // of those that last: execution to *liveCall
}

type liveCall struct {
	stubborn bool
	leave    func()
}

// errLine is the error of a number that fails, after the call was made.
var errLine = errors.New("the line broke: connection reset by peer")

// errSealed is the refusal of an attempt that comes after somebody has established that there was none.
var errSealed = errors.New("the ledger has sealed this operation")

// invoke makes a call. It does not look whether it made it before: that is the broker's to see to.
func (m *mockAdapter) invoke(execution, number string, c broker.Call, leave func()) (ref string, err error) {
	defer func(begun time.Time) {
		said := ref
		if err != nil {
			said = err.Error()
		}
		m.trace.call(event{From: roleAgent, To: "adapter", What: "call " + number + " for " + execution, Said: said}, begun)
	}(time.Now())
	lines, err := m.of(c)
	if err != nil {
		leave()
		return "", err
	}
	for _, e := range lines {
		if e.Kind == sealed {
			leave()
			return "", errSealed
		}
	}
	ref = fmt.Sprintf("call/%s/%d", execution, len(lines)+1)
	line := entry{Kind: invoked, Execution: execution, Key: c.Key.String(), Ref: ref, Number: number, PID: os.Getpid()}
	if err := appendLine(&m.mu, m.path, line); err != nil {
		leave()
		return "", err
	}
	switch {
	case strings.HasSuffix(number, "fail"):
		leave()
		return "", errLine
	case strings.HasSuffix(number, "hold"), strings.HasSuffix(number, "stubborn"):
		m.calls.Store(execution, &liveCall{strings.HasSuffix(number, "stubborn"), leave})
	default:
		leave()
	}
	return ref, nil
}

// of returns the ledger's lines of an operation.
func (m *mockAdapter) of(c broker.Call) (own []entry, err error) {
	lines, err := readLines[entry](m.path)
	for _, e := range lines {
		if e.Key == c.Key.String() {
			own = append(own, e)
		}
	}
	return own, err
}

// hangUp asks calls to end, which those that are stubborn do not.
func (m *mockAdapter) hangUp(_ context.Context, executions []string) error {
	for _, execution := range executions {
		if c, ok := m.calls.Load(execution); ok && !c.(*liveCall).stubborn {
			m.end(execution)
		}
	}
	return nil
}

// end ends a call, whatever it is.
func (m *mockAdapter) end(execution string) {
	if c, ok := m.calls.LoadAndDelete(execution); ok {
		m.trace.happened("adapter", "the call of "+execution+" ends")
		c.(*liveCall).leave()
	}
}

// evidence reads the ledger: the call was made, or it was not and, since the ledger is sealed first, never will be (R69, A11). It is
// a broker.EvidenceReader.
func (m *mockAdapter) evidence(_ context.Context, c broker.Call) (contract.Receipt, error) {
	seal := entry{Kind: sealed, Execution: c.OperationID, Key: c.Key.String(), PID: os.Getpid()}
	if found, err := m.made(c); err != nil || found.Result != "" {
		return found, err
	}
	if err := appendLine(&m.mu, m.path, seal); err != nil {
		return contract.Receipt{}, err
	}
	found, err := m.made(c) // an attempt may have come between the look and the seal
	if err != nil || found.Result != "" {
		return found, err
	}
	return contract.Receipt{Result: contract.ResultNotApplied, Detail: "the adapter's ledger has no such call, and is sealed"}, nil
}

// made is the receipt of a call that the ledger has; the zero one if it has none.
func (m *mockAdapter) made(c broker.Call) (contract.Receipt, error) {
	lines, err := m.of(c)
	for _, e := range lines {
		if e.Kind == invoked {
			return contract.Receipt{Result: contract.ResultApplied, Ref: e.Ref}, err
		}
	}
	return contract.Receipt{}, err
}
