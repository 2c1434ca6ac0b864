package contract_test

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
)

var key = uuid.MustParse("0198c0de-7a11-7000-8000-00000000c0de")

func ExampleDecodeConfirmation() {
	body := []byte(`{
	  "schema_version": "operation_recovery.v1",
	  "idempotency_key": "0198c0de-7a11-7000-8000-00000000c0de",
	  "surface_key": "matter:123/forums",
	  "contract_version": "v7",
	  "items": [{"item_id": "a", "op": "add_forum", "params": {"forum": "SDNY", "fee": 9007199254740993}}]
	}`)
	_, err := contract.DecodeConfirmation(body, contract.Limits{})
	fmt.Println(err)

	if invalid, ok := errors.AsType[*contract.InvalidError](err); ok {
		fmt.Println(invalid.Path)
	}
	// Output:
	// INVALID_ARGUMENT: /items/0/params/…: is not exactly a float64; send money and 64-bit ids as strings
	// /items/0/params/fee
}

func ExampleDriftOf() {
	c := contract.OperationConfirmation{IdempotencyKey: key, SurfaceKey: "matter:123/forums", ContractVersion: "v7"}
	reread := contract.CurrentSurfaceState{SurfaceKey: "matter:123/forums", ContractVersion: "v8"}
	fmt.Println(contract.IsStale(c, reread))
	fmt.Println(contract.DriftOf(c, reread))
	// Output:
	// true
	// contract_version was "v7", is "v8"
}

func ExampleOperationResult() {
	r := contract.OperationResult{IdempotencyKey: key, Outcomes: []contract.OperationItemOutcome{
		{ItemID: "a", State: contract.Applied, Ref: "forum/7"},
		{ItemID: "b", State: contract.Failed, Reason: "quota"},
		{ItemID: "c", State: contract.Ambiguous, Reason: contract.ReasonTimeout},
	}}
	fmt.Println(r.Summary())
	fmt.Printf("%+v\n", r.Tally())
	fmt.Println(r.Recovery().Action)
	fmt.Println(errors.Is(r.Err(), contract.ErrUnsettled))
	// Output:
	// 1 of 3 items applied, 1 failed (b), 1 unclear (c). Reload to check what is unclear; do not confirm again.
	// {Applied:1 Failed:1 Skipped:0 Ambiguous:1}
	// reload_to_check
	// true
}

func ExampleDigestOf() {
	digest := func(params string) contract.Digest {
		d, err := contract.DigestOf(contract.OperationProposal{
			SurfaceKey:      "matter:123/forums",
			ContractVersion: "v7",
			Items:           []contract.Item{{ID: "a", Op: "add_forum", Params: json.RawMessage(params)}},
		})
		if err != nil {
			fmt.Println(err)
		}
		return d
	}
	fmt.Printf("%x\n", digest(`{"forum":"SDNY","rank":1}`))
	fmt.Println(digest(`{"forum":"SDNY","rank":1}`) == digest(`{ "rank": 1.0, "forum": "\u0053DNY" }`))
	fmt.Println(digest(`{"forum":"SDNY","rank":1}`) == digest(`{"forum":"SDNY","rank":2}`))
	// Output:
	// 6c388e6aaf806f5199c468421024f31f01b58e67ee06ea0d2e4908d2a0aed11d
	// true
	// false
}

func ExampleCanonicalJSON() {
	out, err := contract.CanonicalJSON([]byte(`{ "b": 1.50, "a": "\u0041" }`))
	fmt.Println(string(out), err)
	_, err = contract.CanonicalJSON([]byte(`{"a": 1, "\u0061": 2}`))
	fmt.Println(err)
	// Output:
	// {"a":"A","b":1.5} <nil>
	// INVALID_ARGUMENT: /…: must not appear twice in its object
}

func ExampleCodeOf() {
	err := fmt.Errorf("confirm: %w", contract.ErrInProgress)
	code, ok := contract.CodeOf(err)
	rule, _ := code.Rule()
	fmt.Println(code, ok, rule.Action)
	// Output:
	// ALREADY_EXISTS true read_existing
}
