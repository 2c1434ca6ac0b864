package contract_test

import (
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
)

// The ten codes, what the caller does next, and what each says of the effect.
func ExampleRetryTable() {
	for _, rule := range contract.RetryTable() {
		fmt.Printf("%-19s %2d  %-19s effect: %s\n", rule.Code, rule.GRPC, rule.Action, rule.Effect)
	}
	// Output:
	// INVALID_ARGUMENT     3  fix_request         effect: none
	// UNAUTHENTICATED     16  reauthenticate      effect: none
	// PERMISSION_DENIED    7  stop_and_authorize  effect: none
	// FAILED_PRECONDITION  9  refresh_state       effect: none
	// ABORTED             10  reread_revision     effect: unknown
	// RESOURCE_EXHAUSTED   8  await_release       effect: none
	// UNAVAILABLE         14  reconcile           effect: unknown
	// DEADLINE_EXCEEDED    4  treat_as_unknown    effect: unknown
	// NOT_FOUND            5  do_not_substitute   effect: none
	// ALREADY_EXISTS       6  read_existing       effect: unknown
}

// A status that has no code in the table proves nothing.
func ExampleFailureCodeOfGRPC() {
	fmt.Println(contract.FailureCodeOfGRPC(10)) // ABORTED
	code, ok := contract.FailureCodeOfGRPC(13)  // INTERNAL
	fmt.Printf("%q %t\n", code, ok)
	// Output:
	// ABORTED true
	// "" false
}

// A failure is found however it was wrapped, and says whether it is certain that nothing happened.
func ExampleFailureOf() {
	err := fmt.Errorf("adding the forum: %w", contract.ErrStale)
	f, ok := contract.FailureOf(err)
	fmt.Println(ok, f.Code, f.Reason, f.KnownNoEffect())
	_, ok = contract.FailureOf(errors.New("connection reset"))
	fmt.Println(ok)
	// Output:
	// true FAILED_PRECONDITION pramaan.agent_operation.stale true
	// false
}

// A refusal proves that nothing happened, unless something else went wrong as well.
func ExampleKnownNoEffect() {
	fmt.Println(contract.KnownNoEffect(fmt.Errorf("adding the forum: %w", contract.ErrStale)))
	fmt.Println(contract.KnownNoEffect(errors.Join(contract.ErrStale, errors.New("commit: connection reset"))))
	// Output:
	// true
	// false
}

// What a server of another protocol than those of this module tells its caller.
func ExampleFailureToTell() {
	_, invalid := contract.DecodeConfirmation([]byte(`{}`), contract.Limits{})
	for _, err := range []error{invalid, errors.Join(contract.ErrDenied, errors.New("commit: connection reset"))} {
		f, ok := contract.FailureToTell(err)
		fmt.Println(ok, f.Code, "- no effect:", f.KnownNoEffect())
		fmt.Println(f.Message)
	}
	// Output:
	// true INVALID_ARGUMENT - no effect: true
	// /schema_version: is required
	// true PERMISSION_DENIED - no effect: false
	// not authorized; whether anything was done is not known; query the original operation
}

// One timeout, and what follows from it: a read is read again, a change is not sent a second time but asked about.
func ExampleDecide() {
	read := contract.Method{Name: "/desk.v1.Desk/Look", ReadOnly: true}
	change := contract.Method{Name: "/desk.v1.Desk/Change"}
	for _, m := range []contract.Method{read, change} {
		d := contract.Decide(m, nil, contract.SentUnknown)
		fmt.Println(m.Name, "-", d.Action, "- effect:", d.Effect, "- same operation:", d.SameOperation)
	}
	d := contract.Decide(change, contract.ErrStale, contract.SentUnknown) // the receiver has answered
	fmt.Println(change.Name, "-", d.Action, "- effect:", d.Effect, "- same operation:", d.SameOperation)
	// Output:
	// /desk.v1.Desk/Look - retry_read - effect: none - same operation: true
	// /desk.v1.Desk/Change - reconcile - effect: unknown - same operation: false
	// /desk.v1.Desk/Change - refresh_state - effect: none - same operation: false
}

func ExampleAgentMethods() {
	methods := contract.AgentMethods("agent.v1.AgentService")
	fmt.Println(len(methods))
	fmt.Println(methods.Of("/agent.v1.AgentService/QueryExecution").ReadOnly)
	fmt.Println(methods.Of("/agent.v1.AgentService/GetExecutionPermit").ReadOnly)
	// Output:
	// 13
	// true
	// false
}

// What a receipt can say.
func ExampleResultCodes() {
	for _, code := range contract.ResultCodes() {
		fmt.Println(code)
	}
	// Output:
	// ACCEPTED
	// APPLIED
	// UNKNOWN
	// CONFLICT
	// REFUSED
	// STOPPED
	// NOT_APPLIED
}

// A request that is sent again has the digest that it had; one that asks for something else has not.
func ExampleNewContent() {
	digest := func(number string, seconds int64) contract.Digest {
		return contract.NewContent("ExecuteAuthorized").Text("number", number).Int("ring_seconds", seconds).Digest()
	}
	first := digest("+4930…", 20)
	fmt.Println(digest("+4930…", 20) == first)
	fmt.Println(digest("+4930…", 21) == first)
	// Output:
	// true
	// false
}
